// Compresses what `/api/v1/docs` serves of a package, each file beside the one it is made of: so the
// bundler tells whose it is, and a new version of the package takes the old ones away. `bun install`
// runs this, and scripts/build.sh for an install without scripts.
import { brotliCompressSync, constants } from "node:zlib";

const FOLDER = "node_modules/swagger-ui-dist";
const FILES = ["swagger-ui-bundle.js", "swagger-ui.css"];

/** The highest: 22 % smaller than gzip, for two seconds. */
const QUALITY = 11;
/** Of 2^24 bytes, the largest that every browser takes: all of the text is seen at once. */
const WINDOW = 24;

for (const file of FILES) {
  const text = await Bun.file(`${FOLDER}/${file}`).bytes();
  const compressed = brotliCompressSync(text, {
    params: {
      [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
      [constants.BROTLI_PARAM_QUALITY]: QUALITY,
      [constants.BROTLI_PARAM_LGWIN]: WINDOW,
      [constants.BROTLI_PARAM_SIZE_HINT]: text.length,
    },
  });
  await Bun.write(`${FOLDER}/${file}.br`, compressed);
}
