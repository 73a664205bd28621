#!/bin/sh
# Puts all that the image holds into a folder: dist/user-api, the C library it needs, an empty /data.
set -eu
cd "$(dirname "$0")/.."
to=$1

fail() {
  echo "Cannot make the image: $1" >&2
  exit 1
}

# What the loader of this system finds, since its files must fit each other. A program for musl, or for
# another machine, needs other files.
case $(ldd dist/user-api 2>&1) in
  *libc.so.6*) ;;
  *) fail "dist/user-api is not linked with a glibc of this system" ;;
esac

# Read by another user than the one who builds.
umask 022
rm -rf "$to"
mkdir -p "$to/libc" "$to/data"
cp dist/user-api "$to/user-api"
chmod 755 "$to/user-api"
for file in $(ldd dist/user-api | grep -o '/[^ ]*'); do
  mkdir -p "$to/libc$(dirname "$file")"
  # What the link leads to, under the link's name.
  cp -L "$file" "$to/libc$file"
done
