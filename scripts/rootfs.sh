#!/bin/sh
# Creates the file system of the image in a directory: dist/user-api, the C library it needs, an empty /data.
set -eu
cd "$(dirname "$0")/.."
to=$1

fail() {
  echo "Cannot build the image: $1" >&2
  exit 1
}

# The libraries of this system, since they must match. A binary for musl or for another platform needs others.
case $(ldd dist/user-api 2>&1) in
  *libc.so.6*) ;;
  *) fail "dist/user-api is not linked with a glibc of this system" ;;
esac

# The files must be readable by the user of the image.
umask 022
rm -rf "$to"
mkdir -p "$to/libc" "$to/data"
cp dist/user-api "$to/user-api"
chmod 755 "$to/user-api"
for file in $(ldd dist/user-api | grep -o '/[^ ]*'); do
  mkdir -p "$to/libc$(dirname "$file")"
  # The target of the link, under the name of the link.
  cp -L "$file" "$to/libc$file"
done
