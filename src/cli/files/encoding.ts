/** The encoding of an input: UTF-8, with or without a byte order mark. */
import { fail } from "../../base/error.ts";

/** The byte order mark as text. */
export const BOM = "\ufeff";
const BOM_BYTES = new TextEncoder().encode(BOM);

const LINE_FEED = 0x0a;

/** The first byte of a gzip file. */
const GZIP = 0x1f;
/** Bytes in which every other file that is no text has a zero: spreadsheets, ZIP archives and UTF-16. */
const START_BYTES = 32;

/**
 * Reads chunks until they are enough. It does not verify that all is UTF-8.
 * @returns these as one, all bytes, both without the byte order mark, and whether there was one: spreadsheets need it
 * @throws {AppError} validation_failed if the input is no text in UTF-8
 */
export async function openText(
  input: AsyncIterable<Uint8Array>,
  isEnough = (bytes: Uint8Array) => bytes.length >= START_BYTES,
) {
  const iterator = input[Symbol.asyncIterator]();
  let bytes: Uint8Array = new Uint8Array();
  while (!isEnough(bytes)) {
    const next = await iterator.next();
    if (next.done === true) break;
    bytes = bytes.length === 0 ? next.value : Buffer.concat([bytes, next.value]);
  }
  if (bytes[0] === GZIP || bytes.subarray(0, START_BYTES).includes(0)) {
    const advice = "save it as CSV UTF-8, or decompress it, e.g. with: zcat";
    fail("validation_failed", `it is no text in UTF-8; ${advice}`);
  }
  const hasBom = BOM_BYTES.every((byte, at) => bytes[at] === byte);
  const start = bytes.subarray(hasBom ? BOM_BYTES.length : 0);
  async function* read(): AsyncGenerator<Uint8Array> {
    yield start;
    // `input` itself would begin anew.
    yield* { [Symbol.asyncIterator]: () => iterator };
  }
  return { start, chunks: read(), hasBom };
}

/** @returns the number of line feeds before the first byte that is not UTF-8. @param chunk may begin in a character */
function linesBeforeInvalid(chunk: Uint8Array): number {
  const start = chunk.findIndex((byte) => (byte & 0xc0) !== 0x80);
  const text = new TextDecoder().decode(chunk.subarray(Math.max(0, start)));
  return text.slice(0, Math.max(0, text.indexOf("\ufffd"))).split("\n").length - 1;
}

/** Passes UTF-8 on. @throws {AppError} validation_failed, naming the line, if a byte is not UTF-8 */
export async function* requireUtf8(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  let line = 1;
  let current: Uint8Array = new Uint8Array();
  try {
    for await (current of chunks) {
      utf8.decode(current, { stream: true });
      for (const byte of current) if (byte === LINE_FEED) line += 1;
      yield current;
    }
    current = new Uint8Array();
    utf8.decode();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const advice =
      "save the file as CSV UTF-8, or convert it, e.g. with: iconv -f WINDOWS-1252 -t UTF-8";
    const place = `line ${line + linesBeforeInvalid(current)}`;
    fail("validation_failed", `${place} is not valid UTF-8: ${advice}`);
  }
}
