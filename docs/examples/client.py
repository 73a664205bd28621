# Creates a user and an order once, reads all users, edits each, and counts: see docs/clients.md.
import http.client, json, os, random, re, time, urllib.error, urllib.request, uuid

BASE = "http://127.0.0.1:3000"
MAX_ATTEMPTS = 6

def request(method, path, body=None, headers={}):
    """Sends a request that is safe to repeat, until there is a complete response. Returns its data and headers."""
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        wait_s = 1
        try:
            sent = urllib.request.Request(BASE + path, data, headers, method=method)
            with urllib.request.urlopen(sent, timeout=90) as response:
                return json.load(response)["data"], response.headers
        except urllib.error.HTTPError as error:
            if error.code not in (429, 502, 503, 504) or attempt == MAX_ATTEMPTS:
                raise
            wait_s = float(error.headers.get("Retry-After", 1))
        except (OSError, http.client.HTTPException, ValueError):  # No connection, or it broke in the headers or the body.
            if attempt == MAX_ATTEMPTS:
                raise
        time.sleep(wait_s + random.random())

def create(path, record, key):
    """Creates a record, or returns the one that an earlier attempt with this key has created."""
    return request("POST", path, record, {"Idempotency-Key": key})[0]

def read_all(path):
    """Reads all records of a list."""
    path = f"{path}?limit=50&after=0"
    while path:
        data, headers = request("GET", path)
        yield from data
        link = re.search(r'<([^>]*)>; rel="next"', headers.get("Link", ""))
        path = link and link[1]

def edit(path, change):
    """
    Edits a record once, without overwriting the change of another client. With the key, an attempt whose response was
    lost is not a 412 when it is repeated.
    """
    while True:
        record, headers = request("GET", path)
        once = {"If-Match": headers["ETag"], "Idempotency-Key": str(uuid.uuid4())}
        try:
            request("PATCH", path, change(record), once)
            return
        except urllib.error.HTTPError as error:
            if error.code != 412:
                raise

user = create("/api/v1/users", {"email": "dan@example.com"}, "import-2026-11-22-1")
items = [{"sku": "tea-01", "quantity": 2, "unit_price": 1999}]
create("/api/v1/orders", {"user_id": user["id"], "currency": "EUR", "items": items}, "import-2026-11-22-2")
for each in read_all("/api/v1/users"):
    edit(f"/api/v1/users/{each['id']}", lambda record: {"metadata": {"seen": "yes"}})
for _ in range(3):
    edit(f"/api/v1/users/{user['id']}", lambda record: {
        "metadata": {"count": str(int(record["metadata"].get("count", 0)) + 1)}
    })
