# Creates a user and an order once, reads all users, edits each, and counts: see docs/clients.md.
import http.client, json, os, random, re, time, urllib.error, urllib.request, uuid

BASE = "http://127.0.0.1:3000"
CLIENT = os.environ.get("CLIENT", "client-1")  # Clients that run at the same time have different names.
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
    Edits a record without overwriting the change of another client. `change` returns None if there is nothing to do:
    after a 412, the change may have been made by an attempt of this client whose response was lost.
    """
    while True:
        record, headers = request("GET", path)
        patch = change(record)
        if patch is None:
            return
        try:
            request("PATCH", path, patch, {"If-Match": headers["ETag"]})
            return
        except urllib.error.HTTPError as error:
            if error.code != 412:
                raise

def count(path):
    """Adds 1 to a number, exactly once: the mark shows that it is done, even if others have added to it since."""
    mark = str(uuid.uuid4())
    def change(record):
        metadata = record["metadata"]
        if metadata.get(CLIENT) != mark:
            return {"metadata": {"count": str(int(metadata.get("count", 0)) + 1), CLIENT: mark}}
    edit(path, change)

user = create("/api/v1/users", {"email": "dan@example.com"}, "import-2026-11-22-1")
items = [{"sku": "tea-01", "quantity": 2, "unit_price": 1999}]
create("/api/v1/orders", {"user_id": user["id"], "currency": "EUR", "items": items}, "import-2026-11-22-2")
for each in read_all("/api/v1/users"):
    edit(f"/api/v1/users/{each['id']}", lambda record: {"metadata": {"seen": "yes"}})
for _ in range(3):
    count(f"/api/v1/users/{user['id']}")
