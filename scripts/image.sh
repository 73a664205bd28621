#!/bin/sh
# Builds the image user-api:<version> with docker, or with buildah if no docker daemon is running, and prints its
# size. With a path as argument, builds an archive at that path with buildah, and keeps no image. With a processor (x64
# or arm64) and a binary for it as further arguments, the image has that binary.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' package.json)
image=user-api:$version
archive=${1:-} cpu=${2:-} binary=${3:-}

# For the labels. The time of the commit, so that two builds of it are identical. The URL of a remote may have a secret.
commit=$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
timestamp=$(git log -1 --format=%ct 2>/dev/null || echo 0)
created=$(TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo unknown)
source=${GITHUB_REPOSITORY:+${GITHUB_SERVER_URL:-}/$GITHUB_REPOSITORY}
set -- --build-arg VERSION="$version" --build-arg COMMIT="$commit" --build-arg CREATED="$created" \
  --build-arg SOURCE="${source:-unknown}" --tag "$image" --tag user-api:latest

# For buildah, and for podman installed as docker: the OCI format has no HEALTHCHECK.
export BUILDAH_FORMAT=docker

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
trap 'exit 1' HUP INT TERM

build_with_docker() {
  docker build "$@" .
  # `docker export`, since the layers of `docker save` may be compressed.
  container=$(docker create "$image")
  docker export "$container" >"$directory/image.tar"
  docker rm "$container" >/dev/null
}

# Only the last stage, with the binary built here, so that no base image is needed. --isolation=chroot also works
# in a sandbox.
build_with_buildah() {
  if [ -z "$binary" ]; then scripts/build.sh; fi
  scripts/rootfs.sh "$directory/rootfs" "${binary:-dist/user-api}" "$cpu"
  buildah bud --isolation=chroot --build-context="build=$directory" --timestamp "$timestamp" \
    ${cpu:+--arch "$(echo "$cpu" | sed s/x64/amd64/)"} "$@" .
  buildah push "$image" "docker-archive:$directory/image.tar:$image"
}

if [ -z "$archive" ] && docker version >/dev/null 2>&1; then
  build_with_docker "$@"
elif command -v buildah >/dev/null; then
  if [ -n "$archive" ]; then
    # Everything is in the temporary directory. vfs works on every file system.
    printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' \
      "$directory/images" "$directory/run" >"$directory/storage.conf"
    printf '[network]\nnetwork_config_dir = "%s"\n' "$directory/networks" >"$directory/containers.conf"
    export CONTAINERS_STORAGE_CONF="$directory/storage.conf" CONTAINERS_CONF="$directory/containers.conf"
  fi
  build_with_buildah "$@"
else
  echo "Cannot build the image: no docker daemon is running, and buildah is not installed" >&2
  exit 1
fi

size() {
  awk "BEGIN { printf \"%.1f MB\", $(wc -c) / 1000000 }"
}
echo "$image: $(size <"$directory/image.tar") raw, $(gzip -c "$directory/image.tar" | size) gzip"
if [ -n "$archive" ]; then mv -f "$directory/image.tar" "$archive"; fi
