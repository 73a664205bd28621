"""A client to start from, for Python 3.9, with its standard library only: see docs/clients.md."""
import http.client, json, random, re, time, urllib.error, urllib.parse, urllib.request, uuid

ATTEMPTS = 10
"""The waits between them take 45 s, or longer if the server asks for it."""
TIMEOUT_S = 90
"""Longer than the server waits for a change."""
REPEATED = (429, 502, 503, 504)
CODES = {400: "validation_failed", 401: "unauthorised", 404: "not_found", 500: "internal"}
"""Of the errors in plain text."""


class ApiError(Exception):
    """
    A response that is an error, after the last attempt if the request could be repeated. Programs decide by its code,
    which docs/api.md lists, by problems, and by allowed: what is allowed instead, such as the statuses that can follow.
    The log of the server has the request_id.
    """

    def __init__(self, request, status, headers, text):
        body = parse(text) or {}
        meta = body.get("meta") or {}
        super().__init__(f"{request}: {status} {body.get('error') or text[:200]}")
        self.status = status
        self.code = meta.get("code") or CODES.get(status, "unknown")
        self.problems = meta.get("problems", [])
        self.allowed = meta.get("allowed")
        self.request_id = headers.get("X-Request-Id")


class KeepRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that follows one becomes a GET."""

    def redirect_request(self, *_):
        return None


def parse(text):
    """Returns None if it is not an object of JSON, as in the response of a proxy."""
    try:
        body = json.loads(text)
        return body if isinstance(body, dict) else None
    except ValueError:
        return None


def wait_s(attempt, headers):
    """Twice as long after each attempt, at most 8 s, or as long as the server asks for, but at most a minute."""
    asked = headers.get("Retry-After", "")
    seconds = max(min(int(asked), 60) if asked.isdecimal() else 0, 2 ** min(attempt - 3, 3))
    return seconds * (1 + random.random() / 4)


def query_of(query):
    """A list is written as 1,2,3. A `+` in a query is a plus sign."""
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        for name, value in query.items()
    }
    return urllib.parse.urlencode(texts, quote_via=urllib.parse.quote)


class Client:
    def __init__(self, url, token):
        self._url = url.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(KeepRedirects)

    def _send(self, method, path, data, headers):
        """Reads the body as well: the connection can break in the middle of it. Returns status, headers and text."""
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode(errors="replace")

    def request(self, method, path, body=None, key=None, if_match=None, attempts=ATTEMPTS):
        """
        Sends a request until there is a complete response. The same idempotency key in a later run of the program returns
        the first response; the default is a random one. Returns the envelope, and headers. Raises ApiError.
        """
        headers = {"Authorization": f"Bearer {self._token}"}
        if method != "GET":
            headers["Idempotency-Key"] = key or str(uuid.uuid4())
        if body is not None:
            headers["Content-Type"] = "application/json"
        if if_match is not None:
            headers["If-Match"] = if_match
        data = None if body is None else json.dumps(body).encode()
        attempt = 1
        while True:
            received = {}
            try:
                status, received, text = self._send(method, path, data, headers)
            except (OSError, http.client.HTTPException):
                if attempt == attempts:
                    raise
            else:
                # Without a body, it broke in the headers, unless it is a redirect.
                is_whole = text or 300 <= status < 400
                if (is_whole and status not in REPEATED) or attempt == attempts:
                    envelope = parse(text) or {}
                    if envelope.get("data") is None:
                        raise ApiError(f"{method} {path}", status, received, text)
                    return envelope, received
            time.sleep(wait_s(attempt, received))
            attempt += 1

    def _pages(self, path, **options):
        """Returns the pages of a list, and of the changes, which have no last one."""
        while path:
            envelope, headers = self.request("GET", path, **options)
            yield envelope["data"]
            link = re.search(r'<([^>]*)>; rel="next"', headers.get("Link", ""))
            path = link and link[1]

    def _list(self, path, query):
        for page in self._pages(f"{path}?{query_of({'limit': 50, 'after': 0, **query})}"):
            yield from page

    def _edit(self, path, change):
        """Edits a record as it is, again if another client was faster."""
        while True:
            envelope, headers = self.request("GET", path)
            try:
                return self.request("PATCH", path, change(envelope["data"]), if_match=headers["ETag"])[0]["data"]
            except ApiError as error:
                if error.code != "version_mismatch":
                    raise

    def users(self, **query):
        """All users that match, page after page."""
        return self._list("/api/v1/users", query)

    def orders(self, **query):
        return self._list("/api/v1/orders", query)

    def user(self, user_id):
        return self.request("GET", f"/api/v1/users/{user_id}")[0]["data"]

    def order(self, order_id):
        return self.request("GET", f"/api/v1/orders/{order_id}")[0]["data"]

    def create_user(self, record, key=None):
        """Creates a user once for each key."""
        return self.request("POST", "/api/v1/users", record, key)[0]["data"]

    def create_order(self, record, key=None):
        return self.request("POST", "/api/v1/orders", record, key)[0]["data"]

    def edit_user(self, user_id, change):
        """The function gets the user, and returns what to change."""
        return self._edit(f"/api/v1/users/{user_id}", change)

    def edit_order(self, order_id, change):
        return self._edit(f"/api/v1/orders/{order_id}", change)

    def position(self):
        """Returns the newest change: those after it are later ones."""
        meta = self.request("GET", "/api/v1/changes?limit=1")[0]["meta"]
        return f"{meta['feed']}-{meta['last']}"

    def changes(self, position):
        """
        All changes after a position, and those to come. It waits for them, also while there is no server. Store the
        position of a change when that is applied. Raises ApiError with the code changes_expired or changes_reset if changes
        are gone: read all users and orders again.
        """
        feed, after = position.split("-")
        query = query_of({"after": after, "feed": feed, "limit": 50, "include": "record", "wait": 50})
        for page in self._pages(f"/api/v1/changes?{query}", attempts=float("inf")):
            for change in page:
                yield {**change, "position": f"{feed}-{change['id']}"}
