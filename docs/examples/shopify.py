# Turns the CSV files of a Shopify export of orders into users.ndjson and orders.ndjson: see docs/moving-in.md.
import csv, json, os, sys
from datetime import datetime
from decimal import Decimal

# Who is somebody else here, by email: {"old@a.example": "new@a.example"}.
SAME = {}
DIGITS = dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(), 0)
DIGITS |= dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3) | {"CLF": 4, "UYW": 4}

def read(paths):
    """Reads the rows of each order, by its name. Only the first row of an order has a total."""
    orders = {}
    for path in paths:
        with open(path, newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                if row["Total"]:
                    if row["Id"] != orders.get(row["Name"], [row])[0]["Id"]:
                        sys.exit(f"Two orders are called {row['Name']}: put a prefix before the names of one shop")
                    orders[row["Name"]] = []
                orders[row["Name"]].append(row)
    return sorted(orders.values(), key=lambda rows: time_of(rows[0]))

def time_of(row):
    return datetime.strptime(row["Created at"], "%Y-%m-%d %H:%M:%S %z")

def amount_of(text, currency):
    """In the minor unit of the currency: 1999 for 19.99 EUR, 1999 for 1999 JPY."""
    return round(Decimal(text or 0).scaleb(DIGITS.get(currency, 2)))

def email_of(row):
    return row["Email"].replace(" ", "").lower() or f"guest-{row['Id']}@no-email.invalid"

def items_of(rows, amount):
    """The items add up to the total of the order: taxes, if they are not included, and what is left are items, too."""
    items = []
    def add(sku, name, quantity, price):
        items.append({"sku": sku[:64], "name": name[:200], "quantity": quantity, "unit_price": price})
    for row in rows:
        if int(row["Lineitem quantity"] or 0) > 0:
            sku, name = row["Lineitem sku"] or "item", row["Lineitem name"] or "Item"
            add(sku, name, int(row["Lineitem quantity"]), amount(row["Lineitem price"]))
    order = rows[0]
    shipping, discount = amount(order["Shipping"]), amount(order["Discount Amount"])
    if shipping:
        add("shipping", order["Shipping Method"] or "Shipping", 1, shipping)
    if discount:
        add("discount", order["Discount Code"] or "Discount", 1, -discount)
    rest = amount(order["Total"]) - sum(item["quantity"] * item["unit_price"] for item in items)
    if rest == amount(order["Taxes"]) and rest:
        add("tax", "Taxes", 1, rest)
    elif rest or not items:
        add("other", "Gift card or discount" if rest < 0 else "Other", 1, rest)
    return items

def status_of(order):
    """Shopify does not say what was delivered. A status that is not known here is rejected by the import."""
    if order["Cancelled at"]:
        return "canceled"
    if order["Fulfillment Status"] == "fulfilled":
        return "shipped"
    status = order["Financial Status"]
    if status in ("", "authorized", "expired", "partially_paid"):
        return "pending"
    if status in ("refunded", "partially_refunded"):
        return "paid"
    return "canceled" if status == "voided" else status

def metadata_of(order):
    """The addresses, phone numbers and notes that the order has, such as `shipping_city`."""
    columns = ["Phone", "Notes", "Note Attributes", "Tags", "Payment Method", "Financial Status", "Fulfillment Status"]
    columns += [name for name in order if (name or "").startswith(("Billing ", "Shipping "))]
    texts = {name.lower().replace(" ", "_")[:40]: (order.get(name) or "").lstrip("'")[:500] for name in columns}
    return {"shopify_id": order["Id"]} | {key: text for key, text in texts.items() if text}

def order_of(rows):
    order = rows[0]
    amount = lambda text: amount_of(text, order["Currency"])
    email = email_of(order)
    return {"user_email": SAME.get(email, email), "reference": order["Name"], "currency": order["Currency"],
        "items": items_of(rows, amount), "refunded": amount(order["Refunded Amount"]), "status": status_of(order),
        "metadata": metadata_of(order), "created_at": time_of(order).isoformat()}

for path in ("users.ndjson", "orders.ndjson", "expected-sums"):
    if os.path.exists(path):
        os.remove(path)
every, users, sums = read(sys.argv[1:]), {}, {}
with open("orders.ndjson", "w") as file:
    for rows in every:
        order, email = order_of(rows), email_of(rows[0])
        file.write(json.dumps(order) + "\n")
        if email not in SAME:
            name = rows[0]["Billing Name"] or rows[0]["Shipping Name"]
            users.setdefault(email, {"email": email}).update({"name": name[:200]} if name else {})
        sum_of = sums.setdefault(order["currency"], {"orders": 0, "refunded": 0, "total": 0})
        sum_of["orders"] += 1
        sum_of["refunded"] += order["refunded"]
        sum_of["total"] += amount_of(rows[0]["Total"], order["currency"])
with open("users.ndjson", "w") as file:
    file.writelines(json.dumps(user) + "\n" for user in users.values())
with open("expected-sums", "w") as file:
    file.write(json.dumps(sums, indent=2, sort_keys=True) + "\n")
