#!/bin/sh
# Builds an image of each Linux binary in dist/release, as an archive for `docker load`, and adds their checksums.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' package.json)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for cpu in x64 arm64; do
  tar -xzf "dist/release/user-api-$version-linux-$cpu.tar.gz" -C "$work"
  scripts/image.sh "$work/image.tar" "$cpu" "$work/user-api-$version-linux-$cpu/user-api"
  gzip --no-name --stdout "$work/image.tar" >"dist/release/user-api-$version-image-linux-$cpu.tar.gz"
done
cd dist/release
sha256sum "user-api-$version-image-"* >>SHA256SUMS
