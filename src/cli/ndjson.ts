/** NDJSON: one JSON record a line, in UTF-8. @see https://github.com/ndjson/ndjson-spec */
import { failField } from "../error.ts";
import { parseJson } from "../json.ts";
import type { Entry } from "./format.ts";

const NEWLINE = 0x0a;
/** Bytes of a line at most: twice what the largest order takes with every character escaped. */
const MAX_LINE = 2 ** 20;

const utf8 = new TextDecoder("utf-8", { fatal: true });

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return failField("record", "must be valid UTF-8");
  }
}

function createEntry(line: number, bytes: Uint8Array): Entry {
  return {
    line,
    size: bytes.length,
    read() {
      if (bytes.length > MAX_LINE) failField("record", `must be at most ${MAX_LINE} bytes`);
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
): AsyncGenerator<readonly Entry[]> {
  let line = 0;
  /** The beginning of a line whose end has not come yet. */
  let rest: Uint8Array = new Uint8Array();
  for await (const chunk of chunks) {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    const entries: Entry[] = [];
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
      line += 1;
      const record = bytes.subarray(start, end);
      if (!isBlank(record)) entries.push(createEntry(line, record));
      start = end + 1;
    }
    // Of a line that is too long it is enough to keep that it is.
    rest = bytes.slice(start, start + MAX_LINE + 1);
    yield entries;
  }
  if (!isBlank(rest)) yield [createEntry(line + 1, rest)];
}

export function writeNdjson(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
