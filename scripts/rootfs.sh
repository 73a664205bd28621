#!/bin/sh
# Creates the file system of the image in a directory: the binary, the C library it needs, an empty /data.
# rootfs.sh DIRECTORY [BINARY [CPU]]
set -eu
cd "$(dirname "$0")/.."
to=$1 binary=${2:-dist/user-api} cpu=${3:-}

fail() {
  echo "Cannot build the image: $1" >&2
  exit 1
}

# The libraries of this system, since they must match. A binary for musl needs others.
root='' files=''
case $(ldd "$binary" 2>&1) in
  *libc.so.6*) files=$(ldd "$binary" | grep -o '/[^ ]*') ;;
  *) if [ "$cpu" = arm64 ]; then
    # Debian's and Ubuntu's package libc6-arm64-cross.
    root=/usr/aarch64-linux-gnu
    files=$(readelf --dynamic "$binary" | sed -n 's|.*(NEEDED).*\[\(.*\)\]|/lib/\1|p')
  fi ;;
esac
[ -n "$files" ] || fail "$binary is not linked with a glibc of this system"

# The files must be readable by the user of the image.
umask 022
rm -rf "$to"
mkdir -p "$to/libc" "$to/data"
cp "$binary" "$to/user-api"
chmod 755 "$to/user-api"
for file in $files; do
  mkdir -p "$to/libc$(dirname "$file")"
  # The target of the link, under the name of the link.
  cp -L "$root$file" "$to/libc$file"
done
