/** NDJSON: one JSON record per line, in UTF-8. @see https://github.com/ndjson/ndjson-spec */
import { fail, failField } from "../error.ts";
import { parseJson } from "../json.ts";
import type { RawRecord } from "./file-format.ts";

const NEWLINE = 0x0a;
/** Maximum size of a line: twice that of the largest order with every character escaped. */
const MAX_LINE_BYTES = 2 ** 20;

const utf8 = new TextDecoder("utf-8", { fatal: true });

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return failField("record", "must be valid UTF-8");
  }
}

function createRawRecord(line: number, bytes: Uint8Array): RawRecord {
  return {
    line,
    size: bytes.length,
    parse() {
      if (bytes.length > MAX_LINE_BYTES)
        failField("record", `must be at most ${MAX_LINE_BYTES} bytes`);
      return parseJson(decode(bytes));
    },
  };
}

/** Whether a line has only white space. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
}

/**
 * Detects a file that has JSON, but not one record per line.
 * @throws {AppError} invalid
 */
function requireOneRecordPerLine(bytes: Uint8Array): void {
  const start = new TextDecoder().decode(bytes.subarray(0, 16)).trim();
  if (start.startsWith("[")) {
    fail("invalid", "it is a JSON array, not one object per line; convert it with: jq -c '.[]'");
  }
  if (start === "{" && bytes.length < 16) {
    fail("invalid", "its objects are longer than one line; convert it with: jq -c .");
  }
}

/**
 * A malformed record fails when it is parsed. Blank lines are skipped, but counted.
 * @throws {AppError} invalid if the input is JSON of another form
 */
export async function* readNdjson(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly RawRecord[]> {
  let line = 0;
  let isFirst = true;
  /** The start of a line that is not complete yet. */
  let partialLine: Uint8Array = new Uint8Array();
  for await (const chunk of chunks) {
    const bytes = partialLine.length === 0 ? chunk : Buffer.concat([partialLine, chunk]);
    const entries: RawRecord[] = [];
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
      line += 1;
      const record = bytes.subarray(start, end);
      start = end + 1;
      if (isBlank(record)) continue;
      if (isFirst) requireOneRecordPerLine(record);
      isFirst = false;
      entries.push(createRawRecord(line, record));
    }
    // One byte more than allowed is enough to reject a line that is too long.
    partialLine = bytes.slice(start, start + MAX_LINE_BYTES + 1);
    yield entries;
  }
  if (isBlank(partialLine)) return;
  if (isFirst) requireOneRecordPerLine(partialLine);
  yield [createRawRecord(line + 1, partialLine)];
}

export function formatNdjson(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
