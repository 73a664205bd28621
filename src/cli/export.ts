import { type Flags, readConfig } from "../config.ts";
import { fail } from "../error.ts";
import type { Store } from "../store.ts";
import type { Io, OutputStream } from "./context.ts";
import { csvHeader, formatCsv } from "./csv.ts";
import { type BulkTable, type FileFormat, formatFor, requireSupportedFormat } from "./format.ts";
import { formatNdjson } from "./ndjson.ts";
import { createProgress, type Progress } from "./progress.ts";

/** Records that are read at once: some 10 MB where they are as large as can be. */
const PAGE_SIZE = 100;

export interface ExportOptions {
  readonly table: BulkTable;
  /** `null` for that of the file's name. */
  readonly format: FileFormat | null;
  /** `null` for stdout. */
  readonly path: string | null;
}

/** @throws {AppError} operator if a record is damaged, else the error itself */
function explainDamage(error: unknown, after: number): never {
  if (!(error instanceof SyntaxError)) throw error;
  return fail(
    "operator",
    `Cannot read the records after id ${after}: one has malformed JSON. Run \`user-api check\``,
  );
}

/** @returns how many records went out; fewer than there are when the reader has gone */
async function exportRecords<Row extends { readonly id: number }>(
  exportPage: (after: number, limit: number) => Promise<readonly Row[]>,
  format: (records: readonly Row[]) => string,
  output: OutputStream,
  progress: Progress,
): Promise<number> {
  let after = 0;
  let count = 0;
  for (;;) {
    const records = await exportPage(after, PAGE_SIZE).catch((error) =>
      explainDamage(error, after),
    );
    if (records.length === 0 || !output.write(format(records))) return count;
    after = records.at(-1)?.id ?? after;
    count += records.length;
    progress.update(count);
  }
}

async function writeTable(
  { bulk }: Store,
  table: BulkTable,
  format: FileFormat,
  output: OutputStream,
  progress: Progress,
): Promise<number> {
  if (table === "orders") {
    return exportRecords(bulk.orders.exportPage, formatNdjson, output, progress);
  }
  if (format === "csv") output.write(csvHeader());
  const write = format === "csv" ? formatCsv : formatNdjson;
  return exportRecords(bulk.users.exportPage, write, output, progress);
}

/**
 * Writes all users or all orders, by id, beside a running server too.
 * @throws {AppError} operator when the database cannot be read or the file not be written
 */
export async function exportTable(options: ExportOptions, flags: Flags, io: Io): Promise<void> {
  const { table, path } = options;
  const config = readConfig(io.environment, flags);
  const format = formatFor(options.format, path);
  requireSupportedFormat(table, format);
  const store = await io.openStore({ ...config, exclusive: false, create: false, now: io.now });
  try {
    using output = io.openOutput(path);
    const { total } = await store[table].list({ limit: 1, offset: 0 });
    const progress = createProgress(io, total);
    let count: number;
    try {
      count = await writeTable(store, table, format, output, progress);
    } finally {
      progress[Symbol.dispose]();
    }
    output.finish();
    io.stderr(`Exported ${count} ${table}\n`);
  } finally {
    await store.close();
  }
}
