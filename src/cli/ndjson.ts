/** NDJSON: one JSON record a line, in UTF-8. @see https://github.com/ndjson/ndjson-spec */
import { failField } from "../error.ts";
import { parseJson } from "../json.ts";
import type { RawRecord } from "./format.ts";

const NEWLINE = 0x0a;
/** Bytes of a line at most: twice what the largest order takes with every character escaped. */
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

/** Whether there is nothing but white space. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
}

/** A record that is malformed says so when it is read. Blank lines count, and are no records. */
export async function* readNdjson(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly RawRecord[]> {
  let line = 0;
  /** The beginning of a line whose end has not come yet. */
  let partial_line: Uint8Array = new Uint8Array();
  for await (const chunk of chunks) {
    const bytes = partial_line.length === 0 ? chunk : Buffer.concat([partial_line, chunk]);
    const entries: RawRecord[] = [];
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
      line += 1;
      const record = bytes.subarray(start, end);
      if (!isBlank(record)) entries.push(createRawRecord(line, record));
      start = end + 1;
    }
    // Of a line that is too long it is enough to keep that it is.
    partial_line = bytes.slice(start, start + MAX_LINE_BYTES + 1);
    yield entries;
  }
  if (!isBlank(partial_line)) yield [createRawRecord(line + 1, partial_line)];
}

export function formatNdjson(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
