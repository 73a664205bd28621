# Creates a user once, reads all users, and edits each: see docs/clients.md.
import json, os, random, re, time, urllib.error, urllib.request

BASE = "http://127.0.0.1:3000"
MAX_ATTEMPTS = 6

def request(method, path, body=None, headers={}):
    """Sends a request that is safe to repeat, until the server has time for it."""
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        wait_s = 1
        try:
            return urllib.request.urlopen(urllib.request.Request(BASE + path, data, headers, method=method))
        except urllib.error.HTTPError as error:
            if error.code not in (429, 502, 503, 504) or attempt == MAX_ATTEMPTS:
                raise
            wait_s = float(error.headers.get("Retry-After", 1))
        except OSError:
            if attempt == MAX_ATTEMPTS:
                raise
        time.sleep(wait_s + random.random())

def read_all(path):
    """Reads all records of a list."""
    path = f"{path}?limit=50&after=0"
    while path:
        response = request("GET", path)
        yield from json.load(response)["data"]
        link = re.search(r'<([^>]*)>; rel="next"', response.headers.get("Link", ""))
        path = link and link[1]

def edit(path, change):
    """Edits a record without overwriting the change of another client."""
    while True:
        found = request("GET", path)
        headers = {"If-Match": found.headers["ETag"]}
        try:
            return request("PATCH", path, change(json.load(found)["data"]), headers)
        except urllib.error.HTTPError as error:
            if error.code != 412:
                raise

request("POST", "/api/v1/users", {"email": "gil@example.com"}, {"Idempotency-Key": "import-2026-11-22-3"})
for user in read_all("/api/v1/users"):
    edit(f"/api/v1/users/{user['id']}", lambda record: {"metadata": {"seen": "yes"}})
