/** CSV of users: RFC 4180 in UTF-8 with a header line. The cell of `metadata` holds JSON. */
import { pipeline } from "node:stream";
import { CsvError, parse } from "csv-parse";
import { AppError, fail, failInvalid } from "../error.ts";
import { parseJson } from "../json.ts";
import { User } from "../user.ts";
import type { RawRecord } from "./file-format.ts";

/** Maximum size of a record, like that of a line of NDJSON. */
const MAX_RECORD_BYTES = 2 ** 20;
/** Records per iteration. */
const YIELD_RECORDS = 100;

type Column = keyof User;

const columns = Object.keys(User.properties) as Column[];

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

/** Call only for cells that are not empty: an empty cell means that the field is absent. */
function readCell(column: Column, cell: string): unknown {
  // Validation rejects other text than digits.
  if (column === "id" || column === "version") return /^\d{1,16}$/.test(cell) ? Number(cell) : cell;
  return column === "metadata" ? readMetadata(cell) : cell;
}

/** @throws {AppError} invalid */
function readCells(header: readonly Column[], cells: readonly string[]): unknown {
  if (cells.length !== header.length) {
    const problem = `must have ${header.length} cells like the header, not ${cells.length}`;
    failInvalid([{ field: "record", problem }]);
  }
  const record: Partial<Record<Column, unknown>> = {};
  for (const [index, column] of header.entries()) {
    const cell = cells[index] ?? "";
    if (cell !== "") record[column] = readCell(column, cell);
  }
  // A user with an id has all fields. An export writes null and {} as empty cells.
  return "id" in record ? { name: null, metadata: {}, ...record } : record;
}

/** @throws {AppError} invalid */
function readHeader(cells: readonly string[]): Column[] {
  for (const [index, cell] of cells.entries()) {
    if (cells.length === 1 && /[;\t]/.test(cell)) {
      fail("invalid", "the cells of the header must be separated by commas");
    }
    if (!columns.includes(cell as Column)) {
      fail("invalid", `column "${cell}" is not one of ${columns.join(", ")}`);
    }
    if (cells.indexOf(cell) < index) fail("invalid", `column "${cell}" is given more than once`);
  }
  return cells as Column[];
}

/** Rejects invalid UTF-8, which the parser would silently replace with U+FFFD. */
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
    fail("invalid", "the text is not valid UTF-8; save the file as CSV UTF-8");
  }
}

interface Row {
  readonly info: { readonly lines: number };
  readonly record: readonly string[];
}

/**
 * A record with an invalid cell fails when it is parsed.
 * @throws {AppError} invalid if the header or the quotes are wrong, and the rest cannot be read
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
  // The loop below throws all errors.
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
      const headerColumns = header;
      const text = cells.join();
      const line = info.lines - (text.split("\n").length - 1);
      entries.push({ line, size: text.length, parse: () => readCells(headerColumns, cells) });
      if (entries.length === YIELD_RECORDS) {
        yield entries;
        entries = [];
      }
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    fail("invalid", error.message);
  }
  yield entries;
}

export function csvHeader(): string {
  return `${columns.join()}\n`;
}

function formatCell(value: User[Column]): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  // All text is quoted, so that it may have commas, quotes and line breaks.
  return `"${text.replaceAll('"', '""')}"`;
}

export function formatCsv(users: readonly User[]): string {
  return users
    .map((user) => `${columns.map((column) => formatCell(user[column])).join()}\n`)
    .join("");
}
