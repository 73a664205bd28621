/** CSV of users: RFC 4180 in UTF-8, with a header line, metadata as JSON in one cell. */
import { pipeline } from "node:stream";
import { CsvError, parse } from "csv-parse";
import { stringify } from "csv-stringify/sync";
import { AppError, fail, failInvalid } from "../error.ts";
import { parseJson } from "../json.ts";
import { User } from "../user.ts";
import type { RawRecord } from "./format.ts";

/** Bytes of a record at most, as of a line of NDJSON. */
const MAX_RECORD_BYTES = 2 ** 20;
/** Records that are handed on at once. */
const YIELD_RECORDS = 100;

const columns = Object.keys(User.properties) as (keyof User)[];

type Column = keyof User;

/** Digits are a number; what is none is left for the check to refuse. */
function readInteger(cell: string): unknown {
  return /^\d{1,16}$/.test(cell) ? Number(cell) : cell;
}

/** @throws {AppError} invalid */
function readMetadata(cell: string): unknown {
  try {
    return parseJson(cell);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return failInvalid(
      error.problems.map(({ field, problem }) => ({
        field: field === "body" ? "metadata" : `metadata.${field}`,
        problem,
      })),
    );
  }
}

/** An empty cell is an absent member, which for `name` is the same as null. */
function readCell(column: Column, cell: string): unknown {
  if (column === "id" || column === "version") return readInteger(cell);
  return column === "metadata" ? readMetadata(cell) : cell;
}

/** @throws {AppError} invalid */
function readCells(header: readonly Column[], cells: readonly string[]): unknown {
  if (cells.length !== header.length) {
    const problem = `must have ${header.length} cells, as the header has, not ${cells.length}`;
    failInvalid([{ field: "record", problem }]);
  }
  const record: Partial<Record<Column, unknown>> = {};
  for (const [at, column] of header.entries()) {
    const cell = cells[at] ?? "";
    if (cell !== "") record[column] = readCell(column, cell);
  }
  // A user that brings an id is complete, and null and {} are written as nothing.
  return "id" in record ? { name: null, metadata: {}, ...record } : record;
}

/** @throws {AppError} operator */
function readHeader(cells: readonly string[]): Column[] {
  for (const [at, cell] of cells.entries()) {
    if (!columns.includes(cell as Column)) {
      fail("operator", `column "${cell}" is not one of ${columns.join(", ")}, comma-separated`);
    }
    if (cells.indexOf(cell) < at) fail("operator", `column ${cell} comes more than once`);
  }
  return cells as Column[];
}

/** Passes on what is UTF-8: the parser would put U+FFFD for all else without a word. */
async function* requireUtf8(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  try {
    for await (const chunk of chunks) {
      utf8.decode(chunk, { stream: true });
      yield chunk;
    }
    utf8.decode();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    fail("operator", "it is not valid UTF-8; save it as CSV UTF-8");
  }
}

interface Row {
  readonly info: { readonly lines: number };
  readonly record: readonly string[];
}

/**
 * A record with a wrong cell says so when it is read.
 * @throws {AppError} operator when the header or the quotes are wrong, and so all that follows
 */
export async function* readCsv(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly RawRecord[]> {
  const parser = parse({
    bom: true,
    info: true,
    max_record_size: MAX_RECORD_BYTES,
    record_delimiter: ["\r\n", "\n"],
    relax_column_count: true,
    skip_empty_lines: true,
  });
  // Whatever fails, the loop below throws it.
  pipeline(requireUtf8(chunks), parser, () => {});
  let header: readonly Column[] | null = null;
  let entries: RawRecord[] = [];
  try {
    for await (const row of parser) {
      const { record: cells, info } = row as Row;
      if (header === null) {
        header = readHeader(cells);
        continue;
      }
      const header_columns = header;
      const text = cells.join();
      const line = info.lines - (text.split("\n").length - 1);
      entries.push({ line, size: text.length, parse: () => readCells(header_columns, cells) });
      if (entries.length === YIELD_RECORDS) {
        yield entries;
        entries = [];
      }
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    fail("operator", error.message);
  }
  yield entries;
}

export function csvHeader(): string {
  return `${columns.join()}\n`;
}

export function formatCsv(users: readonly User[]): string {
  // All text in quotes: so that a lone carriage return is, too.
  return stringify(
    users.map((user) =>
      columns.map((column) =>
        column === "metadata" ? JSON.stringify(user.metadata) : user[column],
      ),
    ),
    { quoted_string: true },
  );
}
