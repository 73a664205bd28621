# Keeps a copy of all users and orders in step: see docs/changes.md.
import http.client, json, os, re, shutil, time, urllib.error, urllib.request

BASE = "http://127.0.0.1:3000"
HEADERS = {"Authorization": f"Bearer {os.environ['TOKEN']}"}


def get(path):
    """Repeats the request until it succeeds or has a definite error."""
    while True:
        seconds = 1
        try:
            request = urllib.request.Request(BASE + path, headers=HEADERS)
            with urllib.request.urlopen(request, timeout=90) as response:
                link = re.search(r'<([^>]*)>; rel="next"', response.headers.get("Link", ""))
                return response.status, json.load(response), link.group(1) if link else ""
        except urllib.error.HTTPError as error:
            if error.code == 410:
                return error.code, None, ""
            if error.code not in (429, 502, 503, 504):
                raise
            seconds = int(error.headers.get("Retry-After", 1))
        except (OSError, http.client.HTTPException, ValueError):
            pass  # No connection, or it broke in the headers or the body.
        time.sleep(seconds)


def write(path, text):
    with open("copy/new", "w") as file:
        file.write(text)
    os.replace("copy/new", path)


def file_of(table, record_id):
    return f"copy/{table}/{record_id}.json"


def delete(path):
    if os.path.exists(path):
        os.remove(path)


def store(table, record):
    path = file_of(table, record["id"])
    if os.path.exists(path):
        with open(path) as file:
            if json.load(file)["version"] >= record["version"]:
                return
    write(path, json.dumps(record))


def synchronize():
    shutil.rmtree("copy", ignore_errors=True)
    meta = get("/api/v1/changes?limit=1")[1]["meta"]
    for table in ("users", "orders"):
        os.makedirs(f"copy/{table}")
        path = f"/api/v1/{table}?after=0&limit=50"
        while path:
            _, body, path = get(path)
            for record in body["data"]:
                store(table, record)
    position = f"after={meta['last']}&feed={meta['feed']}"
    return f"/api/v1/changes?{position}&limit=50&include=record&wait=50"


def apply(change):
    table = "users" if change["type"].startswith("user") else "orders"
    if change["type"] == "user.deleted" or change["record"] is None:
        delete(file_of(table, change["record_id"]))
    if change["record"] is not None:
        store(table, change["record"])


position = ""
if os.path.exists("copy/next"):
    with open("copy/next") as file:
        position = file.read()
while True:
    if not position:
        position = synchronize()
        write("copy/next", position)
    status, body, following = get(position)
    if status == 410:
        position = ""
        continue
    for change in body["data"]:
        apply(change)
    position = following
    write("copy/next", position)
