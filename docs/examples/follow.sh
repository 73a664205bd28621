# Keeps a copy of all users and orders in step: see docs/changes.md. Run it with bash. It needs curl and jq.
set -euo pipefail
base=http://127.0.0.1:3000
# A curl that outlives this script, when it is killed, writes to files that nothing reads.
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
page=$temporary/page.json
headers=$temporary/headers.txt
lines=$temporary/lines.txt

# Sets status and next, and leaves the body in a file. Repeats the request until it succeeds or has a definite error.
get() {
  while true; do
    status=$(curl -sS -m 90 -o "$page" -D "$headers" -w '%{response_code}' \
      -H "Authorization: Bearer $TOKEN" "$base$1") || status=503
    next=$(sed -n 's/^[Ll]ink: .*<\([^>]*\)>; rel="next".*/\1/p' "$headers")
    case $status in
      # If the connection breaks in the middle of the headers, curl reports success and an empty body.
      200 | 410) if [ -s "$page" ]; then return; fi ;;
      429 | 50[234]) ;;
      *) echo "$1: $status $(cat "$page")" >&2; exit 1 ;;
    esac
    seconds=$(sed -n 's/^[Rr]etry-[Aa]fter: \([0-9]*\).*/\1/p' "$headers")
    sleep "${seconds:-1}"
  done
}

# Reads lines of table, id, version and record. It is no part of a pipeline, because that would outlive this script as
# well.
store() {
  local table id version record
  while read -r table id version record; do
    file="copy/$table/$id.json"
    if [ "$record" = null ]; then rm -f "$file"; continue; fi
    # In metadata, it would be text.
    if [ -e "$file" ] && [[ $(<"$file") =~ \"version\":([0-9]+) ]] &&
      [ "${BASH_REMATCH[1]}" -ge "$version" ]; then
      continue
    fi
    printf '%s\n' "$record" >copy/new
    mv copy/new "$file"
  done
}

synchronize() {
  rm -rf copy
  get '/api/v1/changes?limit=1'
  position=$(jq -r '.meta | "/api/v1/changes?after=\(.last)&feed=\(.feed)"' "$page")
  position="$position&limit=50&include=record&wait=50"
  for table in users orders; do
    mkdir -p "copy/$table"
    next="/api/v1/$table?after=0&limit=50"
    while [ -n "$next" ]; do
      get "$next"
      jq -r --arg table "$table" '.data[] | "\($table) \(.id) \(.version) \(tojson)"' "$page" >"$lines"
      store <"$lines"
    done
  done
}

changes='.data[] | (.type | split(".")[0] + "s") as $table
  | (if .type == "user.deleted" then "\($table) \(.record_id) 0 null" else empty end),
    "\($table) \(.record_id) \(.record.version) \(.record | tojson)"'

touch "$headers"
position=$(cat copy/next 2>/dev/null || true)
while true; do
  if [ -z "$position" ]; then
    synchronize
  else
    get "$position"
    if [ "$status" = 410 ]; then position=; continue; fi
    jq -r "$changes" "$page" >"$lines"
    store <"$lines"
    position=$next
  fi
  printf '%s' "$position" >copy/new
  mv copy/new copy/next
done
