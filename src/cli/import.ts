import type { ImportResult } from "../bulk.ts";
import { type Config, invalidValue } from "../config.ts";
import { redactPassword } from "../database-url.ts";
import { AppError, fail, messageOf } from "../error.ts";
import { hasId } from "../import-plan.ts";
import { createOrderParser, type OrderImport } from "../order.ts";
import type { Store } from "../store.ts";
import { createUserParser, type UserImport } from "../user.ts";
import { formatCount, formatNumber } from "./count-text.ts";
import { readCsv } from "./csv.ts";
import { type BulkTable, formatFor, type RawRecord, type TransferOptions } from "./file-format.ts";
import { readNdjson } from "./ndjson.ts";
import { createProgress, type Progress } from "./progress.ts";
import {
  type CommandSystem,
  type InputStream,
  stopSignal,
  throwIfStopped,
  withStore,
} from "./system.ts";

/** Maximum records per transaction: the writes of a running server wait for it. */
const BATCH_RECORDS = 5000;
/** Approximate maximum size of a transaction. */
const BATCH_BYTES = 4 * 2 ** 20;
/** Rejected records that are listed; the others are only counted. */
const MAX_LISTED_REJECTIONS = 20;

/** Visible ASCII, like an idempotency key. The number of the line is appended. */
const IMPORT_KEY = /^[\x21-\x7e]{1,200}$/;

export interface ImportOptions extends TransferOptions {
  /** Name of the import. It identifies orders without ids if the import is repeated. */
  readonly key: string | null;
  readonly dryRun: boolean;
}

interface ImportCounts {
  created: number;
  unchanged: number;
  rejected: number;
}

/** @throws {AppError} invalid */
function requireValidKey(table: BulkTable, key: string | null): void {
  if (key === null) return;
  if (table === "users") {
    fail("invalid", "--key is for orders only: users are recognized by their email");
  }
  if (!IMPORT_KEY.test(key)) {
    fail("invalid", invalidValue("--key", key, "must be 1 to 200 visible ASCII characters"));
  }
}

/** @returns the problems of a record, in the words of the file rather than of an HTTP request */
function problemsOf(error: unknown): string {
  if (!(error instanceof AppError) || error.code !== "invalid") throw error;
  return error.problems
    .map(({ field, problem }) => `${field === "body" ? "record" : field} ${problem}`)
    .join("; ");
}

interface Rejection {
  readonly line: number;
  readonly reason: string;
}

/** Lists the first rejected records, and counts the others. */
function createRejectionReport(progress: Progress) {
  let listed = 0;
  let hidden = 0;
  return {
    add(rejections: readonly Rejection[]): void {
      const sorted = rejections.toSorted((left, right) => left.line - right.line);
      const shown = sorted.slice(0, MAX_LISTED_REJECTIONS - listed);
      for (const { line, reason } of shown) progress.note(`line ${line}: ${reason}`);
      listed += shown.length;
      hidden += sorted.length - shown.length;
    },
    finish(): void {
      if (hidden > 0) progress.note(`… and ${formatNumber(hidden)} more`);
    },
  };
}

type RejectionReport = ReturnType<typeof createRejectionReport>;

/** Imports records in batches. */
async function importRecords<Given>(
  entries: AsyncIterable<readonly RawRecord[]>,
  parse: (entry: RawRecord) => Given,
  importBatch: (records: readonly Given[]) => Promise<readonly ImportResult[]>,
  counts: ImportCounts,
  report: RejectionReport,
): Promise<void> {
  let batch: { readonly line: number; readonly record: Given }[] = [];
  let rejections: Rejection[] = [];
  let size = 0;

  function add(entry: RawRecord): void {
    size += entry.size;
    try {
      batch.push({ line: entry.line, record: parse(entry) });
    } catch (error) {
      rejections.push({ line: entry.line, reason: problemsOf(error) });
      counts.rejected += 1;
    }
  }

  async function flush(): Promise<void> {
    const results = await importBatch(batch.map(({ record }) => record));
    for (const [index, result] of results.entries()) {
      counts[result.outcome] += 1;
      const line = batch[index]?.line ?? 0;
      if (result.outcome === "rejected") rejections.push({ line, reason: result.reason });
    }
    report.add(rejections);
    batch = [];
    rejections = [];
    size = 0;
  }

  for await (const part of entries) {
    for (const entry of part) {
      add(entry);
      if (batch.length + rejections.length >= BATCH_RECORDS || size >= BATCH_BYTES) await flush();
    }
  }
  await flush();
}

/** Every order of such a file would be rejected. @throws {AppError} operator */
function requireKey(firstOrder: unknown): void {
  if (hasId(firstOrder) || typeof firstOrder !== "object") return;
  fail(
    "operator",
    "Cannot import orders without ids: name the import with --key, so that it is safe to repeat",
  );
}

/** @param key `null` if the import has no name */
function createOrderEntryParser(key: string | null): (entry: RawRecord) => OrderImport {
  const parseOrder = createOrderParser();
  let isFirst = true;
  return (entry) => {
    const order = entry.parse();
    if (isFirst && key === null) requireKey(order);
    isFirst = false;
    return parseOrder(order, key === null ? null : `${key}:${entry.line}`);
  };
}

/** Passes the input on until a signal arrives. @throws {AppError} operator when it does */
async function* readUntilStopped(
  { chunks }: InputStream,
  progress: Progress,
  stop: AbortSignal,
): AsyncGenerator<Uint8Array> {
  let wake: (next: null) => void = () => {};
  stop.addEventListener("abort", () => wake(null));
  const iterator = chunks[Symbol.asyncIterator]();
  let bytes = 0;
  while (!stop.aborted) {
    // A terminal or a pipe may never send another chunk. Promise.race with one promise for the whole input would keep
    // every chunk in memory.
    const { promise, resolve, reject } = Promise.withResolvers<IteratorResult<Uint8Array> | null>();
    wake = resolve;
    iterator.next().then(resolve, reject);
    const next = await promise;
    if (next === null) break;
    if (next.done === true) return;
    yield next.value;
    bytes += next.value.length;
    progress.update(bytes);
  }
  throwIfStopped(stop, "Interrupted");
}

async function importAll(
  { bulk }: Store,
  options: ImportOptions,
  input: InputStream,
  counts: ImportCounts,
  system: CommandSystem,
): Promise<void> {
  using progress = createProgress(system, input.size);
  const report = createRejectionReport(progress);
  const { table, key, dryRun } = options;
  const readEntries = formatFor(options) === "csv" ? readCsv : readNdjson;
  const entries = readEntries(readUntilStopped(input, progress, stopSignal(system)));
  try {
    if (table === "users") {
      const parseUser = createUserParser();
      const parse = (entry: RawRecord) => parseUser(entry.parse());
      const importBatch = (users: readonly UserImport[]) => bulk.users.import(users, dryRun);
      await importRecords(entries, parse, importBatch, counts, report);
    } else {
      const importBatch = (orders: readonly OrderImport[]) => bulk.orders.import(orders, dryRun);
      await importRecords(entries, createOrderEntryParser(key), importBatch, counts, report);
    }
  } finally {
    report.finish();
  }
}

/** @returns the error that the operator reads */
function describeFailure(
  error: unknown,
  { path, dryRun }: ImportOptions,
  { databaseUrl }: Config,
  counts: ImportCounts,
): unknown {
  if (!(error instanceof AppError)) return error;
  const subjects: Partial<Record<AppError["code"], string>> = {
    invalid: `Cannot read ${path ?? "the input"}: `,
    operator: "",
  };
  const subject = subjects[error.code] ?? `Cannot import into ${redactPassword(databaseUrl)}: `;
  const isSaved = !dryRun && counts.created + counts.unchanged > 0;
  const advice = isSaved ? ". Earlier batches were saved; run the command again to continue" : "";
  return new AppError("operator", `${subject}${messageOf(error)}${advice}`);
}

/** @returns e.g. `Imported 300,000 users (0 unchanged, 0 rejected)` */
function summarize(
  { created, unchanged, rejected }: ImportCounts,
  { table, dryRun }: ImportOptions,
): string {
  const records = formatCount(created, table === "users" ? "user" : "order");
  const others = `${formatNumber(unchanged)} unchanged, ${formatNumber(rejected)} rejected`;
  return `${dryRun ? "Would import" : "Imported"} ${records} (${others})`;
}

/**
 * Reads users or orders from a file or from stdin and stores them. A server may be running.
 * @throws {AppError} operator if records were rejected, or the import stopped early
 */
export async function importTable(options: ImportOptions, system: CommandSystem): Promise<void> {
  const { table, dryRun, path, key } = options;
  const format = formatFor(options);
  requireValidKey(table, key);
  const input = system.openInput(path);
  if (input.isTerminal) {
    const expected = format === "csv" ? "CSV with a header line" : "one JSON object per line";
    system.stderr(`Reading ${table} from the terminal: ${expected}. Press Ctrl-D to finish.\n`);
  }
  const counts: ImportCounts = { created: 0, unchanged: 0, rejected: 0 };
  await withStore(system, dryRun ? { readOnly: true } : { create: true }, async (store, config) => {
    try {
      await importAll(store, options, input, counts, system);
    } catch (error) {
      throw describeFailure(error, options, config, counts);
    }
  });
  const message = summarize(counts, options);
  if (counts.rejected > 0) fail("operator", message);
  system.stderr(`${message}\n`);
}
