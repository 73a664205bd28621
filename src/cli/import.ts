import { type Config, type Flags, readConfig, redactPassword } from "../config.ts";
import { AppError, fail, messageOf } from "../error.ts";
import type { BulkStore } from "../import.ts";
import { createOrderParser } from "../order.ts";
import type { Store } from "../store.ts";
import { createUserParser } from "../user.ts";
import type { InputStream, Io } from "./context.ts";
import { readCsv } from "./csv.ts";
import {
  type BulkTable,
  type FileFormat,
  formatFor,
  type RawRecord,
  requireSupportedFormat,
} from "./format.ts";
import { readNdjson } from "./ndjson.ts";
import { createProgress, type Progress } from "./progress.ts";

/** Records of a transaction at most: a server beside the import waits for one with its writes. */
const BATCH_RECORDS = 5000;
/** Bytes of a transaction at most, nearly. */
const BATCH_BYTES = 4 * 2 ** 20;

/** Visible ASCII, as an idempotency key; the number of the line comes behind it. */
const IMPORT_KEY = /^[\x21-\x7e]{1,200}$/;

export interface ImportOptions {
  readonly table: BulkTable;
  /** `null` for that of the file's name. */
  readonly format: FileFormat | null;
  /** `null` for stdin. */
  readonly path: string | null;
  /** What the import is called, so that orders without ids are known when it is run again. */
  readonly key: string | null;
  readonly dry_run: boolean;
}

interface ImportCounts {
  created: number;
  unchanged: number;
  rejected: number;
}

/** @throws {AppError} operator */
function requireKey(table: BulkTable, key: string | null): void {
  if (key === null) return;
  if (table === "users") fail("operator", "Cannot use --key: users are known by their emails");
  if (!IMPORT_KEY.test(key)) {
    fail("operator", "Cannot read --key: must be 1 to 200 visible ASCII characters");
  }
}

/** What a refusal says of a record, without the words that are for a client. */
function problemsOf(error: unknown): string {
  if (!(error instanceof AppError) || error.code !== "invalid") throw error;
  return error.problems
    .map(({ field, problem }) => `${field === "body" ? "record" : field} ${problem}`)
    .join("; ");
}

/** Takes records until a batch is full, then hands it to the store, and tells what was refused. */
function createImporter<Given>(
  { import: importBatch }: Pick<BulkStore<unknown, Given>, "import">,
  parse: (entry: RawRecord) => Given,
  dry_run: boolean,
  progress: Progress,
) {
  const counts: ImportCounts = { created: 0, unchanged: 0, rejected: 0 };
  let batch: { readonly line: number; readonly record: Given }[] = [];
  let rejections: { readonly line: number; readonly reason: string }[] = [];
  let size = 0;

  async function flush(): Promise<void> {
    const results = await importBatch(
      batch.map(({ record }) => record),
      dry_run,
    );
    for (const [at, result] of results.entries()) {
      counts[result.outcome] += 1;
      const line = batch[at]?.line ?? 0;
      if (result.outcome === "rejected") rejections.push({ line, reason: result.reason });
    }
    rejections.sort((left, right) => left.line - right.line);
    for (const { line, reason } of rejections) progress.note(`line ${line}: ${reason}`);
    batch = [];
    rejections = [];
    size = 0;
  }

  return {
    counts,
    async add(entry: RawRecord): Promise<void> {
      try {
        batch.push({ line: entry.line, record: parse(entry) });
      } catch (error) {
        rejections.push({ line: entry.line, reason: problemsOf(error) });
        counts.rejected += 1;
      }
      size += entry.size;
      if (batch.length + rejections.length >= BATCH_RECORDS || size >= BATCH_BYTES) await flush();
    },
    flush,
  };
}

function createTableImporter(store: Store, options: ImportOptions, progress: Progress) {
  const { table, key, dry_run } = options;
  if (table === "users") {
    const parseUser = createUserParser();
    return createImporter(store.bulk.users, (entry) => parseUser(entry.parse()), dry_run, progress);
  }
  const parseOrder = createOrderParser();
  const parse = (entry: RawRecord) =>
    parseOrder(entry.parse(), key === null ? null : `${key}:${entry.line}`);
  return createImporter(store.bulk.orders, parse, dry_run, progress);
}

/** What has been read of the input is told as it is read. */
async function* reportProgress(
  { chunks }: InputStream,
  progress: Progress,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of chunks) {
    yield chunk;
    bytes += chunk.length;
    progress.update(bytes);
  }
}

async function importAll(
  store: Store,
  options: ImportOptions,
  input: InputStream,
  progress: Progress,
): Promise<ImportCounts> {
  const importer = createTableImporter(store, options, progress);
  const readEntries = formatFor(options.format, options.path) === "csv" ? readCsv : readNdjson;
  for await (const entries of readEntries(reportProgress(input, progress))) {
    for (const entry of entries) await importer.add(entry);
  }
  await importer.flush();
  return importer.counts;
}

/** What stopped an import, to its operator. */
function describeInterruption(error: unknown, { path }: ImportOptions, config: Config): unknown {
  if (!(error instanceof AppError)) return error;
  const problem =
    error.code === "unavailable"
      ? `Cannot write ${redactPassword(config.database_url)}`
      : `Cannot read ${path ?? "the input"}`;
  const message = `${problem}: ${messageOf(error)}. What came before is kept: run it again to go on`;
  return new AppError("operator", message);
}

function summary(
  { created, unchanged, rejected }: ImportCounts,
  { table, dry_run }: ImportOptions,
): string {
  const imported = dry_run ? `Would import ${created} ${table}` : `Imported ${created} ${table}`;
  return `${imported}; ${unchanged} already there, ${rejected} refused`;
}

/**
 * Reads users or orders and keeps them, beside a running server too.
 * @throws {AppError} operator when a record was refused, or something stopped it on the way
 */
export async function importTable(options: ImportOptions, flags: Flags, io: Io): Promise<void> {
  const { table, dry_run, path, key } = options;
  const config = readConfig(io.environment, flags);
  requireSupportedFormat(table, formatFor(options.format, path));
  requireKey(table, key);
  const input = io.openInput(path);
  const store = await io.openStore({ ...config, exclusive: false, create: !dry_run, now: io.now });
  let counts: ImportCounts;
  const progress = createProgress(io, input.size);
  try {
    counts = await importAll(store, options, input, progress);
  } catch (error) {
    throw describeInterruption(error, options, config);
  } finally {
    progress[Symbol.dispose]();
    await store.close();
  }
  const message = summary(counts, options);
  if (counts.rejected > 0) fail("operator", message);
  io.stderr(`${message}\n`);
}
