// Compresses the files of swagger-ui-dist that `/api/v1/docs` serves. The results are in the directory of the
// package, so that the bundler attributes them to it, and a new version replaces them. `bun install` runs this, so
// that the server runs from source. scripts/build.sh runs it with --best.
import { brotliCompressSync, constants } from "node:zlib";

const DIRECTORY = "node_modules/swagger-ui-dist";
const FILES = ["swagger-ui-bundle.js", "swagger-ui.css"];

/** 11 is the highest: 22 % smaller than gzip, in four seconds. 5 takes 50 ms. */
const QUALITY = Bun.argv.includes("--best") ? 11 : 5;
/** 2^24 bytes, the largest window that every browser supports: it holds all of the text. */
const WINDOW = 24;

for (const file of FILES) {
  const text = await Bun.file(`${DIRECTORY}/${file}`).bytes();
  const compressed = brotliCompressSync(text, {
    params: {
      [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
      [constants.BROTLI_PARAM_QUALITY]: QUALITY,
      [constants.BROTLI_PARAM_LGWIN]: WINDOW,
      [constants.BROTLI_PARAM_SIZE_HINT]: text.length,
    },
  });
  await Bun.write(`${DIRECTORY}/${file}.br`, compressed);
}
