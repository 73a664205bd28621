#!/bin/sh
# Builds dist/user-api. Arguments are passed to `bun build`, e.g. --target=bun-linux-arm64.
set -eu
cd "$(dirname "$0")/.."

# `user-api version` prints it. A container image is built without the repository.
commit=${COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)}

# --minify-identifiers (so --minify and --production) breaks Elysia's hooks: a 401 became a 500.
# --no-compile-autoload-*: otherwise the binary loads .env and bunfig.toml of its working directory.
# --bytecode halves the startup time; it defaults to CommonJS, which has no top-level await, hence --format.
# No --sourcemap (0.7 MB): stack traces have function names anyway, as identifiers are not minified.
# NODE_ENV=production sets `process.env.NODE_ENV` at build time. Elysia reads `Bun.env` at run time, and if that
# is not production, its validation errors echo the input, slowly: so the banner sets it.
# --entry-naming puts all entry points into one directory, where `new Worker("./…")` looks for them.
# --max-http-header-size: a connection whose header is not complete holds it in memory, twice if it arrives in parts, and
# thousands of them need no token. Bun's default is 16 KiB.
# --external file-type: Elysia loads it to inspect uploads, which this API does not have; it would add 1 MB.
NODE_ENV=production scripts/bun.sh build src/main.ts src/archive.worker.ts src/sqlite/file/thread.worker.ts \
  src/sqlite/tables/sums.worker.ts \
  --compile --outfile=dist/user-api \
  --entry-naming='[name].[ext]' --external file-type --minify-whitespace --minify-syntax \
  --no-compile-autoload-dotenv --no-compile-autoload-bunfig \
  --compile-exec-argv=--max-http-header-size=8192 \
  --bytecode --format=esm --define "BUILD_COMMIT=\"$commit\"" \
  --banner='Bun.env.NODE_ENV = "production";' "$@"
