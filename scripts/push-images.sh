#!/bin/sh
# Pushes the images in dist/release to a repository of a registry as one image for several platforms, tagged with the
# version and as the latest one. Prints its digest.
set -eu
cd "$(dirname "$0")/.."
repository=$1
version=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' package.json)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

list=$(buildah manifest create "user-api-$$")
for archive in "dist/release/user-api-$version-image-"*.tar.gz; do
  gunzip --stdout "$archive" >"$work/image.tar"
  buildah manifest add "$list" "$(buildah pull --quiet "docker-archive:$work/image.tar")"
done >&2
for tag in "$version" latest; do
  buildah manifest push --all --format v2s2 --digestfile "$work/digest" "$list" "docker://$repository:$tag"
done >&2
# buildah 1.28 exits with 0 even if it could not push.
grep sha256: "$work/digest"
