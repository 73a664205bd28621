/** CSV: RFC 4180 with a header line. The cells of `metadata` and `items` hold JSON. */
import { pipeline } from "node:stream";
import { CsvError, parse } from "csv-parse";
import { AppError, fail, failField, failInvalid } from "../../base/error.ts";
import { parseJson } from "../../base/json.ts";
import { quoteReadably } from "../../base/readable-text.ts";
import type { Schema } from "../../base/schema.ts";
import type { RecordTable } from "../../domain/record.ts";
import { decodeText } from "./encoding.ts";
import { ERROR_FIELD, importSchemas, type OnUnknown, type RawRecord } from "./file-format.ts";

const MAX_RECORD_BYTES = 2 ** 20;

/** The first wins if the header has several equally often, or none. */
const DELIMITERS = [",", ";", "\t"];

/** It is ignored if the schema is `null`. */
type Column = { readonly field: string; readonly schema: Schema | null };

function readJson(field: string, cell: string): unknown {
  try {
    return parseJson(cell);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const nameOf = (inner: string) => (inner === "body" ? field : `${field}.${inner}`);
    return failInvalid(error.problems.map((each) => ({ ...each, field: nameOf(each.field) })));
  }
}

function readCell(field: string, schema: Schema, cell: string): unknown {
  // Validation rejects other text than digits.
  if (schema.type === "integer") return /^(?:0|[1-9]\d{0,15})$/.test(cell) ? Number(cell) : cell;
  return schema.type === "object" || schema.type === "array" ? readJson(field, cell) : cell;
}

function readCells(columns: readonly Column[], cells: readonly string[]): unknown {
  const { length } = columns;
  if (cells.length !== length)
    failField("record", "length", `must have ${length} cells like the header, not ${cells.length}`);
  const record: Record<string, unknown> = {};
  /** What the empty cells of a record with an id stand for. Only a field that can be null has `anyOf`. */
  const empty: Record<string, unknown> = {};
  const hasId = columns.some(({ field }) => field === "id");
  for (const [index, { field, schema }] of columns.entries()) {
    if (field === "" && cells[index] !== "")
      failField("record", "not_allowed", `has a cell in column ${index + 1}, which has no name`);
    if (schema === null) continue;
    const cell = cells[index] ?? "";
    // Databases write it for a value that is missing. Our exports, which have ids, do not.
    if (!hasId && (cell === "NULL" || cell === "\\N"))
      failField(field, "format", `is ${cell}: leave the cell empty if there is no value`);
    if (cell !== "") record[field] = readCell(field, schema, cell);
    else if ("anyOf" in schema) empty[field] = null;
    else if (field === "metadata") empty[field] = {};
  }
  return "id" in record ? { ...empty, ...record } : record;
}

function quoteText(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}

function readColumns(names: readonly string[], table: RecordTable, onUnknown: OnUnknown | null) {
  const schemas: Readonly<Record<string, Schema>> = importSchemas[table].properties;
  const unknown: string[] = [];
  const seen = new Set<string>();
  const columns = names.map((name): Column => {
    const field = name.trim().toLowerCase();
    const schema = Object.hasOwn(schemas, field) ? (schemas[field] ?? null) : null;
    // Spreadsheets write columns that were cleared.
    if (field === "" && onUnknown === null) return { field, schema };
    if (schema === null && field !== ERROR_FIELD) unknown.push(name || "(no name)");
    else if (seen.has(field))
      fail("validation_failed", `column ${quoteReadably(name)} is given more than once`);
    seen.add(field);
    return { field: field || "(no name)", schema };
  });
  if (onUnknown !== null) unknown.forEach(onUnknown);
  else if (unknown.length > 0) {
    const advice = `use ${Object.keys(schemas).join(", ")}, or skip columns with --ignore-unknown`;
    fail("validation_failed", `unknown columns ${quoteReadably(...unknown)}: ${advice}`);
  }
  return columns;
}

function findDelimiter(header: string): string {
  const unquoted = header.replaceAll(/"[^"]*"/g, "");
  const count = (delimiter: string) => unquoted.split(delimiter).length;
  return DELIMITERS.reduce((best, each) => (count(each) > count(best) ? each : best));
}

const FIRST_LINE = /^\s*(\S[^\r\n]*)[\r\n]/;
/** A byte order mark, and a first line with which Excel names the delimiter, instead of the header. */
const START = /^\ufeff?(?:"?sep=([^"\w\r\n])"?(?:\r\n?|\n))?/i;

/** Rejected rows are written with the reason in the first column. */
function createRowReader(
  names: readonly string[],
  table: RecordTable,
  onUnknown: OnUnknown | null,
  { delimiter, start }: CsvRow,
) {
  const columns = readColumns(names, table, onUnknown);
  const join = (cells: readonly string[]) =>
    `${cells.map((cell) => (cell === "" ? "" : quoteText(cell))).join(delimiter)}\n`;
  const others = (cells: readonly string[]) =>
    cells.filter((_, index) => columns[index]?.field !== ERROR_FIELD);
  const header = `${start}${join([ERROR_FIELD, ...others(names)])}`;
  return ({ cells, line, size }: CsvRow): RawRecord => ({
    header,
    line,
    size,
    parse: () => readCells(columns, cells),
    withError: (message) => join([message, ...others(cells)]),
  });
}

interface CsvRow {
  readonly cells: readonly string[];
  /** On which it begins, from 1. */
  readonly line: number;
  /** In characters. */
  readonly size: number;
  readonly delimiter: string;
  /** What precedes the header. */
  readonly start: string;
}

/**
 * Rows of empty cells are skipped.
 * @throws {AppError} validation_failed if the quotes are wrong, and the rest cannot be read
 */
async function* readRows(chunks: AsyncGenerator<string>): AsyncGenerator<CsvRow> {
  let text = "";
  for (let isEnough = false; !isEnough; ) {
    const { value = "", done = false } = await chunks.next();
    text += value;
    isEnough = done || text.length > MAX_RECORD_BYTES || FIRST_LINE.test(text);
  }
  async function* readAll(): AsyncGenerator<string> {
    yield text;
    yield* chunks;
  }
  const [start = "", separator] = START.exec(text) ?? [];
  const header = FIRST_LINE.exec(text)?.[1] ?? text;
  const delimiter = separator ?? findDelimiter(header);
  let lastLine = 0;
  const parser = parse({
    bom: true,
    delimiter,
    from_line: separator === undefined ? 1 : 2,
    info: true,
    max_record_size: MAX_RECORD_BYTES,
    // Called immediately. An error drops the records that the loop below has not read yet.
    onRecord(row: string[], { lines }) {
      lastLine = lines;
      return row;
    },
    record_delimiter: ["\r\n", "\n", "\r"],
    relax_column_count: true,
    // Also lines without a cell. Spreadsheets write rows of empty cells for those that were cleared.
    skip_records_with_empty_values: true,
  });
  // The loop below throws all errors.
  pipeline(readAll(), parser, () => {});
  try {
    for await (const { record: cells, info } of parser) {
      const row = cells.join();
      const line = info.lines - (row.split(/\r\n?|\n/).length - 1);
      yield { cells, line, size: row.length, delimiter, start };
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const advice = 'enclose a cell that has quotes in quotes, and write " within it as ""';
    const problem = `the record at line ${lastLine + 1} is not valid CSV, or has more than ${MAX_RECORD_BYTES} bytes`;
    fail("validation_failed", `${problem}: ${advice}`);
  }
}

export interface Row {
  /** Text by column. Empty cells are left out. */
  readonly cells: Readonly<Record<string, string>>;
  readonly line: number;
  /** Whether it has fewer cells than the header. */
  readonly isCut: boolean;
}

/** Rows of another program. @throws {AppError} validation_failed if columns are missing, or the rest cannot be read */
export async function* readTable(
  chunks: AsyncGenerator<string>,
  required: readonly string[],
): AsyncGenerator<Row> {
  let names: readonly string[] | null = null;
  for await (const { cells, line } of readRows(chunks)) {
    const all = cells.map((cell) => cell.trim());
    if (names === null) {
      const missing = required.filter((name) => !all.includes(name)).join(", ");
      if (missing !== "") failField("header", "required", `lacks the columns ${missing}`);
      names = all;
      continue;
    }
    const pairs = names.map((name, index) => [name, all[index] ?? ""] as const);
    const filled = Object.fromEntries(pairs.filter(([, cell]) => cell !== ""));
    yield { cells: filled, line, isCut: all.length < names.length };
  }
}

/**
 * A record with an invalid cell fails when it is parsed.
 * @throws {AppError} validation_failed if the header or the quotes are wrong, and the rest cannot be read
 */
export async function* readCsv(
  input: AsyncIterable<Uint8Array>,
  table: RecordTable,
  onUnknown: OnUnknown | null,
): AsyncGenerator<RawRecord> {
  let read: ReturnType<typeof createRowReader> | null = null;
  for await (const row of readRows(decodeText(input))) {
    if (read === null) read = createRowReader(row.cells, table, onUnknown, row);
    else yield read(row);
  }
}

function formatCell(value: unknown): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  // All text is quoted, so that it may have commas, quotes and line breaks.
  return quoteText(typeof value === "string" ? value : JSON.stringify(value));
}

export function csvFormatter({ properties }: Schema, path: string | null = null) {
  const delimiter = path?.toLowerCase().endsWith(".tsv") ? "\t" : ",";
  const columns = Object.keys(properties);
  const formatRow = (fields: Readonly<Record<string, unknown>>) =>
    `${columns.map((column) => formatCell(fields[column])).join(delimiter)}\n`;
  return {
    header: `${columns.join(delimiter)}\n`,
    formatRecords: (records: readonly Readonly<Record<string, unknown>>[]) =>
      records.map(formatRow).join(""),
  };
}
