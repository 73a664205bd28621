#!/bin/sh
# Builds dist/user-api. Arguments go on to `bun build`, e.g. --target=bun-linux-arm64.
set -eu
cd "$(dirname "$0")/.."

# What the binary serves compressed; an install without scripts has not made it.
scripts/bun.sh scripts/assets.ts

# --minify-identifiers (so --minify and --production) breaks Elysia's hooks: a 401 became a 500.
# --no-compile-autoload-*: else the binary obeys a .env or bunfig.toml in the folder it is started in.
# --bytecode halves the start; it defaults to CommonJS, which has no top-level await, hence --format.
# Without --sourcemap, 0.7 MB: a stack has the names of functions all the same, as they are not minified.
# NODE_ENV=production settles `process.env.NODE_ENV` at build. Elysia asks `Bun.env` at run time, and
# when that is not production its validation errors echo the input, slowly: so the banner sets it.
# --entry-naming puts both entry points into one folder, where `new Worker("./…")` looks for them.
# --external file-type: Elysia loads it to look into uploads, of which there are none; it is 1 MB here.
NODE_ENV=production scripts/bun.sh build src/main.ts src/sqlite/thread.worker.ts --compile --outfile=dist/user-api \
  --entry-naming='[name].[ext]' --external file-type --minify-whitespace --minify-syntax \
  --no-compile-autoload-dotenv --no-compile-autoload-bunfig \
  --bytecode --format=esm \
  --banner='Bun.env.NODE_ENV = "production";' "$@"
