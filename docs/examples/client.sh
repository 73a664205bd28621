# Creates a user and an order once, reads all users, and counts: see docs/clients.md. It needs curl and jq.
set -eu
base=http://127.0.0.1:3000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
headers=$work/headers.txt body=$work/body.json patch=$work/patch.json
: >"$headers"

# Sends a request that is safe to repeat, until there is a complete response. Sets status.
request() {
  for attempt in 1 2 3 4 5 6; do
    status=$(curl -sS -m 90 -D "$headers" -o "$body" -w '%{response_code}' \
      -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' "$@") || status=broken
    case $status in
      # If the connection breaks in the middle of the headers, curl reports success and an empty body.
      2??) if [ -s "$body" ]; then return; fi ;;
      412) return ;;
      broken | 429 | 50[234]) ;;
      *) break ;;
    esac
    seconds=$(sed -n 's/^[Rr]etry-[Aa]fter: \([0-9]*\).*/\1/p' "$headers")
    sleep "${seconds:-1}"
  done
  echo "$*: $status $(cat "$body")" >&2
  exit 1
}

# Adds 1 to a number, exactly once, also if others add to it. With the key, an attempt whose response was lost is not a
# 412 when it is repeated.
count() {
  while true; do
    request "$base$1"
    etag=$(sed -n 's/^[Ee][Tt]ag: \([^[:space:]]*\).*/\1/p' "$headers")
    jq -c '{metadata: {count: (.data.metadata.count // "0" | tonumber + 1 | tostring)}}' "$body" >"$patch"
    key=$(od -An -N 16 -t x1 /dev/urandom | tr -d ' ')
    request -X PATCH -H "If-Match: $etag" -H "Idempotency-Key: $key" -d "@$patch" "$base$1"
    if [ "$status" = 200 ]; then return; fi
  done
}

# An earlier attempt with the same key may have created the record.
request -H 'Idempotency-Key: sign-up-17' -d '{"email": "dan@example.com"}' "$base/api/v1/users"
id=$(jq .data.id "$body")
items='[{"sku": "tea-01", "quantity": 2, "unit_price": 1999}]'
request -H 'Idempotency-Key: cart-4711' \
  -d "{\"user_id\": $id, \"currency\": \"EUR\", \"items\": $items}" "$base/api/v1/orders"

: >users.ndjson
path='/api/v1/users?limit=50&after=0'
while [ -n "$path" ]; do
  request "$base$path"
  jq -c '.data[]' "$body" >>users.ndjson
  path=$(sed -n 's/^[Ll]ink: .*<\([^>]*\)>; rel="next".*/\1/p' "$headers")
done

for n in 1 2 3; do count "/api/v1/users/$id"; done
