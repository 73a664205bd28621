#!/bin/sh
# Checks that releases are reproducible: `make release` of HEAD in two fresh clones with different paths, umasks,
# locales and time zones must give the same checksums.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# $1 is the name of the clone; the rest is its environment.
build() {
  clone=$work/$1
  shift
  git clone --quiet --no-hardlinks . "$clone"
  (cd "$clone" && env "$@" make release) >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  cat "$clone/dist/release/SHA256SUMS"
}

umask 022
build a LC_ALL=C TZ=UTC >"$work/first"
umask 077
build a-directory-with-a-much-longer-name/inside LC_ALL=C.UTF-8 TZ=Asia/Kolkata >"$work/second"

if diff "$work/first" "$work/second"; then
  cat "$work/first"
  echo "Two builds of $(git rev-parse --short HEAD) are identical"
else
  echo "Two builds of $(git rev-parse --short HEAD) differ" >&2
  exit 1
fi
