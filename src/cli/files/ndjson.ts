/** NDJSON: one JSON record per line. @see https://github.com/ndjson/ndjson-spec */
import { isUtf8 } from "node:buffer";
import { fail, failField } from "../../base/error.ts";
import { parseJsonBytes } from "../../base/json.ts";
import { BOM, decodeInput } from "./encoding.ts";
import { type InputPart, type RawRecord, type RejectMarks, TEXT_FIELD } from "./file-format.ts";

const NEWLINE = 0x0a;
/** Maximum size of a line: twice that of the largest order with every character escaped. */
const MAX_LINE_BYTES = 2 ** 20;

/** Whether the JSON of a parsed value has its numbers: those that a double cannot hold were rounded. */
function isExact(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  return typeof value !== "object" || value === null || Object.values(value).every(isExact);
}

/** Adds the marks to an object. Of any other line, they have the text, which is to be replaced. */
function addMarks(bytes: Uint8Array, value: unknown, marks: RejectMarks): object {
  const { import_error, import_key } = marks;
  const own = import_key === null ? { import_error } : { import_error, import_key };
  if (bytes.length > MAX_LINE_BYTES) return own;
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject && isExact(value)) return { ...own, ...value, import_error };
  // An encoding with which every byte is a character.
  const decoder = new TextDecoder(isUtf8(bytes) ? "utf-8" : "windows-1252");
  return { ...own, [TEXT_FIELD]: decoder.decode(bytes) };
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
    line,
    size: bytes.length,
    parse,
    withMarks: (marks) => formatNdjson([addMarks(bytes, parseOrNull(), marks)]),
  };
}

/** Whether a line has only white space. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
}

/** A header of CSV. Every record has one of these fields. */
const CSV_HEADER = /^[^{[]*\b(?:email|user_email|user_id)\b/i;

/**
 * Detects a file that has JSON, but not one record per line.
 * @throws {AppError} validation_failed
 */
function requireOneRecordPerLine(bytes: Uint8Array): void {
  const start = new TextDecoder().decode(bytes.subarray(0, 1000)).trim();
  if (start.startsWith("[")) {
    fail(
      "validation_failed",
      "it is a JSON array, not one object per line; convert it with: jq -c '.[]'",
    );
  }
  if (CSV_HEADER.test(start))
    fail("validation_failed", "it seems to be CSV; import it with --format csv");
  if (start === "{" && bytes.length < 16) {
    fail("validation_failed", "its objects are longer than one line; convert it with: jq -c .");
  }
}

/**
 * A malformed record fails when it is parsed. Blank lines are skipped, but counted.
 * @throws {AppError} validation_failed if the input is JSON of another form
 */
export async function* readNdjson(input: AsyncIterable<Uint8Array>): AsyncGenerator<InputPart> {
  const { chunks, hasBom } = await decodeInput(input);
  const header = hasBom ? BOM : "";
  let line = 0;
  let isFirst = true;
  /** The start of a line that is not complete yet. */
  let partialLine: Uint8Array = new Uint8Array();
  for await (const chunk of chunks) {
    const bytes = partialLine.length === 0 ? chunk : Buffer.concat([partialLine, chunk]);
    const records: RawRecord[] = [];
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
      line += 1;
      const record = bytes.subarray(start, end);
      start = end + 1;
      if (isBlank(record)) continue;
      if (isFirst) requireOneRecordPerLine(record);
      isFirst = false;
      records.push(createRawRecord(line, record));
    }
    // One byte more than allowed is enough to reject a line that is too long.
    partialLine = bytes.slice(start, start + MAX_LINE_BYTES + 1);
    yield { header, records };
  }
  if (isBlank(partialLine)) return;
  if (isFirst) requireOneRecordPerLine(partialLine);
  yield { header, records: [createRawRecord(line + 1, partialLine)] };
}

export function formatNdjson(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
