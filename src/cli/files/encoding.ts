/** The encoding of an input, by its byte order mark. */
import { fail } from "../../base/error.ts";

/** The byte order mark as text. */
export const BOM = "\ufeff";

const LINE_FEED = 0x0a;

/** Bytes of the longest byte order mark. */
const BOM_BYTES = 3;
const marks = [
  { encoding: "utf-8", bytes: [0xef, 0xbb, 0xbf] },
  { encoding: "utf-16le", bytes: [0xff, 0xfe] },
  { encoding: "utf-16be", bytes: [0xfe, 0xff] },
] as const;

/** Files that are no text, by their first bytes. */
const binaries = [
  { bytes: [0x1f, 0x8b], problem: "the file is compressed; decompress it, e.g. with: zcat" },
  {
    bytes: [0x50, 0x4b, 0x03],
    problem: "it is a spreadsheet or a ZIP archive; save it as CSV UTF-8",
  },
  { bytes: [0xd0, 0xcf, 0x11], problem: "it is a spreadsheet (.xls); save it as CSV UTF-8" },
];

/** @throws {AppError} validation_failed at the first byte that is not in the encoding */
async function* transcode(
  chunks: AsyncIterable<Uint8Array>,
  encoding: "utf-16le" | "utf-16be",
): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder(encoding, { fatal: true });
  const encoder = new TextEncoder();
  try {
    for await (const chunk of chunks) yield encoder.encode(decoder.decode(chunk, { stream: true }));
    yield encoder.encode(decoder.decode());
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    fail("validation_failed", "the text is not valid UTF-16; save the file as UTF-8");
  }
}

/** Reads chunks until they are enough. @returns these as one, and a function that returns all bytes from an offset in it */
export async function readStart(
  chunks: AsyncIterable<Uint8Array>,
  isEnough: (start: Uint8Array) => boolean,
) {
  const iterator = chunks[Symbol.asyncIterator]();
  let start: Uint8Array = new Uint8Array();
  while (!isEnough(start)) {
    const next = await iterator.next();
    if (next.done === true) break;
    start = start.length === 0 ? next.value : Buffer.concat([start, next.value]);
  }
  async function* readFrom(offset: number): AsyncGenerator<Uint8Array> {
    yield start.subarray(offset);
    // `chunks` itself would begin anew.
    yield* { [Symbol.asyncIterator]: () => iterator };
  }
  return { start, readFrom };
}

/**
 * Detects UTF-16 by its byte order mark, and takes everything else for UTF-8, which is not verified here.
 * @returns UTF-8 text without the byte order mark, and whether there was one: spreadsheets need it
 * @throws {AppError} validation_failed if the input is compressed, or looks like UTF-16 without a byte order mark
 */
export async function decodeInput(input: AsyncIterable<Uint8Array>) {
  const { start, readFrom } = await readStart(input, ({ length }) => length >= BOM_BYTES);
  const isAtStart = ({ bytes }: { readonly bytes: readonly number[] }) =>
    bytes.every((byte, at) => start[at] === byte);
  const binary = binaries.find(isAtStart);
  if (binary !== undefined) fail("validation_failed", binary.problem);
  const mark = marks.find(isAtStart);
  // The first character of CSV and JSON is ASCII.
  if (mark === undefined && start.subarray(0, 2).includes(0)) {
    fail(
      "validation_failed",
      "the text seems to be UTF-16 without a byte order mark; save the file as UTF-8",
    );
  }
  const chunks = readFrom(mark?.bytes.length ?? 0);
  const isUtf8 = mark === undefined || mark.encoding === "utf-8";
  return {
    chunks: isUtf8 ? chunks : transcode(chunks, mark.encoding),
    hasBom: mark !== undefined,
  };
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
