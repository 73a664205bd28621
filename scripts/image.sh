#!/bin/sh
# Builds the image user-api:<version>, with docker if its engine answers, else with buildah, and prints
# its size. With a path: builds with buildah, into an archive there, and leaves no image behind.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' package.json)
image=user-api:$version
archive=${1:-}

# Of buildah, and of podman under docker's name; OCI's own format has no HEALTHCHECK.
export BUILDAH_FORMAT=docker

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

build_with_docker() {
  docker build --build-arg VERSION="$version" --tag "$image" --tag user-api:latest .
  # `docker save` may hold layers that are compressed.
  container=$(docker create "$image")
  docker export "$container" >"$folder/image.tar"
  docker rm "$container" >/dev/null
}

# The last stage alone, around the program as built here: buildah knows no registry by itself, and
# --isolation=chroot runs where a sandbox allows no more.
build_with_buildah() {
  scripts/build.sh
  scripts/rootfs.sh "$folder/rootfs"
  buildah bud --isolation=chroot --build-context="build=$folder" \
    --build-arg VERSION="$version" --tag "$image" --tag user-api:latest .
  buildah push "$image" "docker-archive:$folder/image.tar:$image"
}

if [ -z "$archive" ] && docker version >/dev/null 2>&1; then
  build_with_docker
elif command -v buildah >/dev/null; then
  if [ -n "$archive" ]; then
    # All that it keeps goes with the folder. vfs works on every file system.
    printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' \
      "$folder/images" "$folder/run" >"$folder/storage.conf"
    printf '[network]\nnetwork_config_dir = "%s"\n' "$folder/networks" >"$folder/containers.conf"
    export CONTAINERS_STORAGE_CONF="$folder/storage.conf" CONTAINERS_CONF="$folder/containers.conf"
  fi
  build_with_buildah
else
  echo "Cannot make the image: neither does a docker engine answer nor is there buildah" >&2
  exit 1
fi

size() {
  awk "BEGIN { printf \"%.1f MB\", $(wc -c) / 1000000 }"
}
echo "$image: $(size <"$folder/image.tar") raw, $(gzip -c "$folder/image.tar" | size) gzip"
if [ -n "$archive" ]; then mv -f "$folder/image.tar" "$archive"; fi
