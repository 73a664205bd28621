#!/bin/sh
# Puts all that the image holds into a folder: dist/user-api, the C library it needs, an empty /data.
set -eu
cd "$(dirname "$0")/.."
to=$1

fail() {
  echo "Cannot make the image: $1" >&2
  exit 1
}

# Of this system's own, as the loader finds them: its five files fit each other. With musl it would
# be one file under another name, which `ldd` prints as well, but nobody has run that.
case $(ldd dist/user-api 2>&1) in
  *libc.so.6*) ;;
  *) fail "dist/user-api is not linked with a glibc of this system" ;;
esac

rm -rf "$to"
mkdir -p "$to/libc" "$to/data"
cp dist/user-api "$to/user-api"
for file in $(ldd dist/user-api | grep -o '/[^ ]*'); do
  mkdir -p "$to/libc$(dirname "$file")"
  # What the link leads to, under the link's name.
  cp -L "$file" "$to/libc$file"
done
