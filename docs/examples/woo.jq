# What becomes what when a WooCommerce shop moves in: see docs/moving-in.md.

# An amount in the minor unit of the currency: 1999 for 19.99 EUR, 1999 for 1999 JPY.
def minor($currency):
  (if . == "" then 0 else tonumber end) *
  (if "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF" | contains($currency) then 1
   elif "BHD IQD JOD KWD LYD OMR TND" | contains($currency) then 1000
   elif "CLF UYW" | contains($currency) then 10000
   else 100 end) | round;

# Who is somebody else here: {"56": "55"} for two accounts of one person, {"old@a.example": "new@a.example"} for a guest
# whose email has changed.
def same: {};

# A person is an account of the shop, or the email of a guest, or else an order without an email.
def email: (.billing.email // "") | split(" ") | join("") | ascii_downcase;
def key: .id as $id | if (.customer_id // 0) > 0 then "\(.customer_id)" else email end
  | if . == "" then "guest-\($id)@no-email.invalid" else . end;
def is_guest: .key | contains("@");
def user: {key: (key | same[.] // .)} | if is_guest then {user_email: .key} else {user_reference: .key} end;
def name: .billing | [.first_name, .last_name] | map(select((. // "") != "")) | join(" ") | .[:200];
def person: select(same[key] | not) | {key: key, email: email, name: name, id};

# A user has the newest email and name. If several people have one email, it is that of the newest account.
def placeholder: if is_guest then .key else "customer-\(.key)@no-email.invalid" end;
def newest(field): map(field | select(. != "")) | last;
def users: group_by(.key)
  | map({key: .[0].key, email: (newest(.email) // (first | placeholder)), name: newest(.name), id: last.id})
  | group_by(.email)
  | map(sort_by((is_guest | not), .id) | last, (.[:-1][] | select(is_guest | not) | .email = placeholder))
  # First those that may have lost their email to another one.
  | sort_by(.email | endswith("@no-email.invalid") | not)[]
  | (if is_guest then {} else {reference: .key} end) + {email} + if .name then {name} else {} end;

# Names have HTML entities, such as `&amp;`.
def plain: if contains("&") then gsub("&#0*(?<code>[0-9]+);"; [.code | tonumber] | implode) | gsub("&quot;"; "\"")
  | gsub("&lt;"; "<") | gsub("&gt;"; ">") | gsub("&nbsp;"; " ") | gsub("&amp;"; "&") else . end;

# The amount of a line is what was paid for it: after discounts, with taxes.
def line($sku; $name; $quantity; $currency): {
  sku: $sku[:64], name: (if $name == "" then $sku else $name | plain end), $quantity,
  amount: ((.total | minor($currency)) + (.total_tax | minor($currency)))
};
# An amount that is not a multiple of its quantity becomes one item, such as `3 × Green tea`.
def item:
  if .quantity >= 1 and .quantity == (.quantity | floor) and .amount % .quantity == 0
  then {sku, name, quantity, unit_price: (.amount / .quantity)}
  else {sku, name: "\(.quantity) × \(.name)", quantity: 1, unit_price: .amount} end
  | .name |= .[:200];
# The items add up to the total of the order. What is more than rounding becomes an item: a gift card, for example.
def items:
  .number as $number | .currency as $currency | (.total | minor($currency)) as $total
  | [(.line_items[] | (if (.sku // "") == "" then "product-\(.product_id)" else .sku end) as $sku
       | line($sku; .name; .quantity; $currency)),
     (.shipping_lines[] | line("shipping"; .method_title; 1; $currency)),
     (.fee_lines[] | line("fee"; .name; 1; $currency))]
  | ($total - (map(.amount) | add // 0)) as $rest
  | (map(.amount) | index(max)) as $largest
  | if $rest * $rest <= length * length and $largest and .[$largest].amount + $rest >= 0
    then .[$largest].amount += $rest
    elif $rest < 0 then . + [{sku: "discount", name: "Gift card or discount", quantity: 1, amount: $rest}]
    else . + [{sku: "other", name: "Order \($number)", quantity: 1, amount: $rest}] end
  | map(item);

# What else the shop says, if it says it: billing_city, shipping_city, customer_note …
def texts($prefix): with_entries(.key |= $prefix + .);
def metadata: ({woo_id: "\(.id)", woo_status: .status, customer_note, payment_method}
    + ((.billing // {}) | del(.email) | texts("billing_")) + ((.shipping // {}) | texts("shipping_")))
  | with_entries(select((.value | type) == "string" and .value != "") | .key |= .[:40] | .value |= .[:500])
  | to_entries | .[:50] | from_entries;

# A status that is not in this list is rejected by the import.
def status: if .status == "refunded" and (.date_completed_gmt // "") != "" then "delivered"
  else .status as $status | {
    pending: "pending", "on-hold": "pending", failed: "pending", processing: "paid", completed: "delivered",
    cancelled: "canceled", refunded: "canceled"
  }[$status] // $status end;

def refunded: .currency as $currency | 0 - ([.refunds[]?.total | minor($currency)] | add // 0);

def order: .currency as $currency | user + {
  reference: .number, $currency, items: items,
  refunded: refunded, status: status, metadata: metadata,
  created_at: (.date_created_gmt + ".000Z"),
  updated_at: (([.date_created_gmt, .date_modified_gmt] | max) + ".000Z")
};

# A line that cannot be converted becomes a record that the import rejects.
def convert: . as $line | try (fromjson | order) catch {import_error: ., import_text: $line};

# The number of orders, and the sums of their totals and of what was refunded, by currency.
def sums(orders): reduce orders as $order ({}; .[$order.currency] |=
  {orders: (.orders + 1), total: (.total + $order.total), refunded: (.refunded + $order.refunded)});
