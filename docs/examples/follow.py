# Keeps a copy of all users and orders in step: see docs/changes.md. It needs client.py.
import json, os, shutil
from client import ApiError, Client

api = Client("http://127.0.0.1:3000", os.environ["TOKEN"])


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def write(path, text):
    """Replaces the whole file, also if the program is killed meanwhile."""
    with open("copy/new", "w") as file:
        file.write(text)
    os.replace("copy/new", path)


def file_of(table, record_id):
    return f"copy/{table}/{record_id}.json"


def store(table, record):
    path = file_of(table, record["id"])
    text = read(path)
    if not text or json.loads(text)["version"] < record["version"]:
        write(path, json.dumps(record))


def synchronize():
    """Returns a position before which the copy has everything."""
    position = api.position()
    shutil.rmtree("copy", ignore_errors=True)
    for table, records in (("users", api.users()), ("orders", api.orders())):
        os.makedirs(f"copy/{table}")
        for record in records:
            store(table, record)
    write("copy/position", position)
    return position


def apply(change):
    table = "users" if change["type"].startswith("user") else "orders"
    path = file_of(table, change["record_id"])
    if (change["type"] == "user.deleted" or change["record"] is None) and os.path.exists(path):
        os.remove(path)
    if change["record"] is not None:
        store(table, change["record"])
    write("copy/position", change["position"])


while True:
    try:
        for change in api.changes(read("copy/position") or synchronize()):
            apply(change)
    except ApiError as error:
        if error.status != 410:
            raise
        synchronize()
