# What becomes what when a WooCommerce shop moves in: see docs/moving-in.md.

# An amount in the minor unit of the currency: 1999 for 19.99 EUR, 1999 for 1999 JPY.
def minor($currency):
  (if . == "" then 0 else tonumber end) *
  (if "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF" | contains($currency) then 1
   elif "BHD IQD JOD KWD LYD OMR TND" | contains($currency) then 1000
   else 100 end) | round;

# Orders without an email belong to one user for each customer, and to one for all guests.
def email:
  (.billing.email // "" | split(" ") | join("") | ascii_downcase) as $email
  | if $email == "" then "customer-\(.customer_id)@no-email.invalid" else $email end;
def name:
  .billing | [.first_name, .last_name] | map(select(. != "")) | join(" ")
  | if . == "" then null else .[:200] end;

# The amount of a line is what was paid for it: after discounts, with taxes.
def line($sku; $name; $quantity; $currency): {
  sku: $sku[:64], name: (if $name == "" then $sku else $name end), $quantity,
  amount: ((.total | minor($currency)) + (.total_tax | minor($currency)))
};
# An amount that is not a multiple of its quantity becomes one item, such as `3 × Green tea`.
def item:
  if .quantity >= 1 and .quantity == (.quantity | floor) and .amount % .quantity == 0
  then {sku, name, quantity, unit_price: (.amount / .quantity)}
  else {sku, name: "\(.quantity) × \(.name)", quantity: 1, unit_price: .amount} end
  | .name |= .[:200];
# The items add up to the total of the order: the largest one takes what rounding leaves, unless its price would become
# negative.
def items:
  .number as $number | .currency as $currency | (.total | minor($currency)) as $total
  | [(.line_items[] | (if (.sku // "") == "" then "product-\(.product_id)" else .sku end) as $sku
       | line($sku; .name; .quantity; $currency)),
     (.shipping_lines[] | line("shipping"; .method_title; 1; $currency)),
     (.fee_lines[] | line("fee"; .name; 1; $currency))]
  | if . == [] then [{sku: "order", name: "Order \($number)", quantity: 1, amount: 0}] else . end
  | ($total - (map(.amount) | add)) as $rest
  | (map(.amount) | index(max)) as $largest
  | if .[$largest].amount + $rest >= 0 then .[$largest].amount += $rest
    else . + [{sku: "discount", name: "Discount", quantity: 1, amount: $rest}] end
  | map(item);

# A status that is not in this list is rejected by the import.
def status: {
  pending: "pending", "on-hold": "pending", processing: "paid", completed: "delivered",
  cancelled: "canceled", failed: "canceled", refunded: "canceled"
}[.] // .;

# What identifies an order if the import is repeated.
def identity: {import_key: "woo-\(.id)"};

def order: identity + {
  user_email: email, currency, items: items, status: (.status | status),
  metadata: ({woo_number: .number, woo_status: .status} +
    if .refunds // [] == [] then {} else {woo_refunded: ([.refunds[].total | tonumber] | -add | tostring)} end),
  created_at: (.date_created_gmt + ".000Z"),
  updated_at: (([.date_created_gmt, .date_modified_gmt] | max) + ".000Z")
};

# A line that cannot be converted becomes a record that the import rejects.
def convert: . as $line | try (fromjson | order) catch {import_error: ., import_text: $line};

# The number of orders, and the sum of their totals, by currency.
def sums(orders): reduce orders as $order ({};
  .[$order.currency] |= {orders: (.orders + 1), total: (.total + $order.total)});
