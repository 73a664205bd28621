#!/bin/sh
# Prints the path of the Bun that package.json pins; with arguments, runs it.
# It uses the one on PATH if its version is right, and otherwise downloads it with npm into .bun, once, and compares it
# with the hash in bun-integrity.json. Update the hashes with the version: npm view PACKAGE@VERSION dist.integrity
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/.*"packageManager": *"bun@\([0-9.]*\)".*/\1/p' "$root/package.json")

fail() {
  echo "Cannot provide Bun $version: $1" >&2
  exit 1
}

# The package holds the binary itself and needs no postinstall, unlike npm's `bun`.
package() {
  case $(uname -s) in
    Linux) os=linux ;;
    Darwin) os=darwin ;;
    *) fail "no build for $(uname -s)" ;;
  esac
  libc='' simd=''
  case $(uname -m) in
    x86_64 | amd64) cpu=x64 simd=-baseline ;; # for processors without AVX
    aarch64 | arm64) cpu=aarch64 ;;
    *) fail "no build for $(uname -m)" ;;
  esac
  if [ $os = linux ]; then
    for loader in /lib/ld-musl-*; do
      if [ -e "$loader" ]; then libc=-musl; fi
    done
  fi
  echo "@oven/bun-$os-$cpu$libc$simd"
}

install() {
  name=$(package) || exit 1
  command -v npm >/dev/null || fail "npm is not on PATH"
  mkdir -p "$root/.bun"
  tmp=$(mktemp -d "$root/.bun/tmp.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  trap 'exit 1' HUP INT TERM
  echo "Downloading Bun $version with npm (about 50 MB)" >&2
  # `npm install` takes twice as long. Both verify the checksum.
  (cd "$tmp" && npm pack --ignore-scripts --prefer-offline --fetch-retry-mintimeout=1000 \
    "$name@$version") >"$tmp/log" 2>&1 ||
    fail "npm pack $name@$version: $(sed -En 's/^npm (error|ERR!) //p' "$tmp/log" | head -n 1)"
  hash=$(node -p '"sha512-" + crypto.createHash("sha512").update(fs.readFileSync(process.argv[1])).digest("base64")' \
    "$tmp"/*.tgz) || fail 'node cannot read the archive'
  grep -qF "\"$name\": \"$hash\"" "$root/scripts/bun-integrity.json" ||
    fail "the archive of $name has the hash $hash, which is not the one in scripts/bun-integrity.json"
  tar -xzf "$tmp"/*.tgz -C "$tmp" package/bin/bun || fail "the archive of $name cannot be unpacked"
  new=$tmp/package/bin/bun
  [ "$("$new" --version 2>&1)" = "$version" ] || fail "the binary of $name does not run on this system"
  # A rename is atomic, so two of these at once do no harm.
  mkdir -p "$root/.bun/$version"
  mv -f "$new" "$bun"
}

[ -n "$version" ] || fail "package.json has no \"packageManager\": \"bun@<version>\""

bun=$root/.bun/$version/bun
if [ "$(bun --version 2>/dev/null)" = "$version" ]; then
  bun=$(command -v bun)
elif [ ! -x "$bun" ]; then
  # In a subshell, so that its cleanup runs before the exec below.
  (install)
fi

if [ $# -eq 0 ]; then
  echo "$bun"
else
  # The scripts of package.json call `bun`, and `bun run` does not put itself on PATH.
  PATH=$(dirname "$bun"):$PATH
  export PATH
  # A test file that fails while it is loaded runs no afterAll: its servers would outlive the tests.
  if [ "$1" = test ]; then shift && set -- test --no-orphans "$@"; fi
  exec "$bun" "$@"
fi
