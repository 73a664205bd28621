/** NDJSON: one JSON record per line. @see https://github.com/ndjson/ndjson-spec */
import { fail, failField } from "../../base/error.ts";
import { parseJson } from "../../base/json.ts";
import { decodeText } from "./encoding.ts";
import { ERROR_FIELD, type RawRecord, TEXT_FIELD } from "./file-format.ts";

/** Maximum characters of a line: twice those of the largest order with every character escaped. */
const MAX_LINE_LENGTH = 2 ** 20;

/** Whether the JSON of a parsed value has its numbers: those that a double cannot hold were rounded. */
function isExact(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  return typeof value !== "object" || value === null || Object.values(value).every(isExact);
}

/** Adds the error to an object. Of any other line, the result has the text, which is to be replaced. */
function addError(text: string, value: unknown, message: string): object {
  const error = { [ERROR_FIELD]: message };
  if (text.length > MAX_LINE_LENGTH) return error;
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject && isExact(value)) return { ...error, ...value, ...error };
  return { ...error, [TEXT_FIELD]: text };
}

function createRawRecord(line: number, text: string): RawRecord {
  /** `null` until it is parsed, and if it is malformed. */
  let value: unknown = null;
  return {
    header: "",
    line,
    size: text.length,
    parse() {
      if (text.length > MAX_LINE_LENGTH)
        failField("record", "length", `must be at most ${MAX_LINE_LENGTH} characters`);
      // The first one can have a byte order mark.
      value = parseJson(text.trim());
      return value;
    },
    withError: (message) => formatNdjson([addError(text, value, message)]),
  };
}

/**
 * A malformed record fails when it is parsed. Blank lines are skipped, but counted.
 * @throws {AppError} validation_failed if the first line is no object, or the rest is not UTF-8
 */
export async function* readNdjson(input: AsyncIterable<Uint8Array>): AsyncGenerator<RawRecord> {
  let line = 0;
  let isFirst = true;
  /** Not a generator: one in an asynchronous one takes microseconds for each line, also if it is blank. */
  function read(text: string): RawRecord[] {
    line += 1;
    if (text.trim() === "") return [];
    // Probably no other line is one.
    if (isFirst && !/^\{./.test(text.trim())) {
      const advice = "convert an array with: jq -c '.[]', and import CSV with --format csv";
      fail("validation_failed", `its first line is not a JSON object; ${advice}`);
    }
    isFirst = false;
    return [createRawRecord(line, text)];
  }
  let partialLine = "";
  for await (const chunk of decodeText(input)) {
    const lines = (partialLine + chunk).split("\n");
    // One character more than allowed is enough to reject a line that is too long.
    partialLine = lines.pop()?.slice(0, MAX_LINE_LENGTH + 1) ?? "";
    for (const text of lines) for (const record of read(text)) yield record;
  }
  for (const record of read(partialLine)) yield record;
}

export function formatNdjson(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
