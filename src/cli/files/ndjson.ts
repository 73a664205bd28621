/** NDJSON: one JSON record per line. @see https://github.com/ndjson/ndjson-spec */
import { fail, failField } from "../../base/error.ts";
import { parseJsonBytes } from "../../base/json.ts";
import { openText } from "./encoding.ts";
import { ERROR_FIELD, type RawRecord, TEXT_FIELD } from "./file-format.ts";

const NEWLINE = 0x0a;
/** Maximum size of a line: twice that of the largest order with every character escaped. */
const MAX_LINE_BYTES = 2 ** 20;

/** Whether the JSON of a parsed value has its numbers: those that a double cannot hold were rounded. */
function isExact(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  return typeof value !== "object" || value === null || Object.values(value).every(isExact);
}

/** Adds the error to an object. Of any other line, the result has the text, which is to be replaced. */
function addError(bytes: Uint8Array, value: unknown, message: string): object {
  const error = { [ERROR_FIELD]: message };
  if (bytes.length > MAX_LINE_BYTES) return error;
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject && isExact(value)) return { ...error, ...value, ...error };
  return { ...error, [TEXT_FIELD]: new TextDecoder().decode(bytes) };
}

function createRawRecord(line: number, bytes: Uint8Array): RawRecord {
  function parse(): unknown {
    if (bytes.length > MAX_LINE_BYTES)
      failField("record", "length", `must be at most ${MAX_LINE_BYTES} bytes`);
    return parseJsonBytes(bytes);
  }
  function parseOrNull(): unknown {
    try {
      return parse();
    } catch {
      return null;
    }
  }
  return {
    header: "",
    line,
    size: bytes.length,
    parse,
    withError: (message) => formatNdjson([addError(bytes, parseOrNull(), message)]),
  };
}

/** Whether a line has only white space. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
}

/** @throws {AppError} validation_failed if the first line is no object: probably no other is one */
function requireObject(bytes: Uint8Array): void {
  const start = new TextDecoder().decode(bytes.subarray(0, 1000)).trim();
  if (start.startsWith("{") && start !== "{") return;
  const advice = "convert an array with: jq -c '.[]', and import CSV with --format csv";
  fail("validation_failed", `its first line is not a JSON object; ${advice}`);
}

/**
 * A malformed record fails when it is parsed. Blank lines are skipped, but counted.
 * @throws {AppError} validation_failed if the first line is no object
 */
export async function* readNdjson(
  input: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly RawRecord[]> {
  let line = 0;
  let isFirst = true;
  function* read(bytes: Uint8Array): Generator<RawRecord> {
    line += 1;
    if (isBlank(bytes)) return;
    if (isFirst) requireObject(bytes);
    isFirst = false;
    yield createRawRecord(line, bytes);
  }
  /** The start of a line that is not complete yet. */
  let partialLine: Uint8Array = new Uint8Array();
  const { chunks } = await openText(input);
  for await (const chunk of chunks) {
    const bytes = partialLine.length === 0 ? chunk : Buffer.concat([partialLine, chunk]);
    const records: RawRecord[] = [];
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
      records.push(...read(bytes.subarray(start, end)));
      start = end + 1;
    }
    // One byte more than allowed is enough to reject a line that is too long.
    partialLine = bytes.slice(start, start + MAX_LINE_BYTES + 1);
    yield records;
  }
  yield [...read(partialLine)];
}

export function formatNdjson(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
