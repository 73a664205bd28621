import type { BulkStore } from "../bulk.ts";
import { type Config, invalidValue, readConfig } from "../config.ts";
import { redactPassword } from "../database-url.ts";
import { AppError, fail, failField, messageOf } from "../error.ts";
import { hasId, hasMember } from "../import-plan.ts";
import { createOrderParser, createUserParser, type OrderImport } from "../import-rules.ts";
import { removeUnknownFields, unknownField } from "../schema.ts";
import type { Store } from "../store.ts";
import { formatCount, formatNumber } from "./count-text.ts";
import { readCsv } from "./csv.ts";
import {
  type BulkTable,
  ERROR_FIELD,
  type FileFormat,
  formatFor,
  type InputPart,
  importSchemas,
  type RawRecord,
  streamPath,
  TEXT_FIELD,
} from "./file-format.ts";
import { readNdjson } from "./ndjson.ts";
import { createProgress, type Progress } from "./progress.ts";
import { requireNoDatabaseFile } from "./streams.ts";
import {
  type CommandSystem,
  type InputStream,
  type OutputStream,
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

/** Names of unknown fields that are listed. */
const MAX_LISTED_FIELDS = 20;

/** Visible ASCII, like an idempotency key. The number of the line is appended. */
const IMPORT_KEY = /^[\x21-\x7e]{1,200}$/;

export interface ImportOptions {
  /** By default, that of the file extension. */
  readonly format?: FileFormat;
  /** Name of the import. It identifies orders without ids if the import is repeated. */
  readonly key?: string;
  readonly dryRun?: boolean;
  /** Whether unknown columns and fields are skipped. By default they are errors. */
  readonly ignoreUnknown?: boolean;
  /** Path of the file for the rejected records. */
  readonly rejects?: string;
}

interface ImportJob extends ImportOptions {
  readonly table: BulkTable;
  readonly format: FileFormat;
  /** `null` for stdin. */
  readonly path: string | null;
}

interface ImportCounts {
  created: number;
  unchanged: number;
  rejected: number;
}

/** @throws {AppError} invalid */
function requireValidKey({ table, key }: ImportJob): void {
  if (key === undefined) return;
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
  const problems = error.problems
    .map(({ field, problem }) => `${field === "body" ? "record" : field} ${problem}`)
    .join("; ");
  const hasUnknown = error.problems.some(({ problem }) => problem === unknownField);
  return hasUnknown ? `${problems} (--ignore-unknown skips unknown fields)` : problems;
}

interface Rejection {
  readonly entry: RawRecord;
  readonly reason: string;
}

/**
 * Lists the first rejected records, and writes all of them to a file that can be imported.
 * @param file `null` for none
 * @param key of the import, if it has a name
 * @param counts its `rejected` is incremented for each
 */
function createRejections(
  progress: Progress,
  file: OutputStream | null,
  key: string | undefined,
  counts: ImportCounts,
) {
  return {
    /** @param header of a file of them */
    add(rejections: readonly Rejection[], header: string): void {
      for (const { entry, reason } of rejections) {
        const message = `line ${entry.line}: ${reason}`;
        if (counts.rejected < MAX_LISTED_REJECTIONS) progress.note(message);
        if (counts.rejected === 0) file?.write(header);
        file?.write(entry.withMarks({ import_error: message, import_key: lineKey(key, entry) }));
        counts.rejected += 1;
      }
    },
    /** Without a rejected record there is no file. */
    finishFile(): void {
      if (counts.rejected > 0) file?.finish();
    },
    noteOthers(): void {
      const others = counts.rejected - MAX_LISTED_REJECTIONS;
      if (others > 0) progress.note(`… and ${formatNumber(others)} more`);
    },
  };
}

/** Imports records in batches. */
async function importRecords<Given>(
  parts: AsyncIterable<InputPart>,
  parse: (entry: RawRecord) => Given,
  store: Pick<BulkStore<unknown, Given>, "import">,
  dryRun: boolean,
  counts: ImportCounts,
  rejected: ReturnType<typeof createRejections>,
): Promise<void> {
  let header = "";
  let batch: { readonly entry: RawRecord; readonly record: Given }[] = [];
  let rejections: Rejection[] = [];
  let size = 0;

  function add(entry: RawRecord): void {
    size += entry.size;
    try {
      batch.push({ entry, record: parse(entry) });
    } catch (error) {
      rejections.push({ entry, reason: problemsOf(error) });
    }
  }

  async function flush(): Promise<void> {
    const records = batch.map(({ record }) => record);
    const results = await store.import(records, dryRun);
    for (const [index, { entry }] of batch.entries()) {
      const result = results[index];
      if (result === undefined) throw new Error("the import of a batch lacks a result");
      if (result.outcome === "rejected") rejections.push({ entry, reason: result.reason });
      else counts[result.outcome] += 1;
    }
    rejections.sort((left, right) => left.entry.line - right.entry.line);
    rejected.add(rejections, header);
    batch = [];
    rejections = [];
    size = 0;
  }

  for await (const part of parts) {
    header = part.header;
    for (const entry of part.records) {
      add(entry);
      if (batch.length + rejections.length >= BATCH_RECORDS || size >= BATCH_BYTES) await flush();
    }
  }
  await flush();
}

/** @returns what identifies an order without an id; `null` if the import has no name */
function lineKey(key: string | undefined, { line }: RawRecord): string | null {
  return key === undefined ? null : `${key}:${line}`;
}

/** Every order of such a file would be rejected. @throws {AppError} operator */
function requireKey(firstOrder: unknown): void {
  const isKnown = hasId(firstOrder) || hasMember(firstOrder, "import_key");
  if (isKnown || typeof firstOrder !== "object") return;
  fail(
    "operator",
    "Cannot import orders without ids: name the import with --key, so that it is safe to repeat",
  );
}

/** @param key of the import, if it has a name */
function createOrderEntryParser(
  read: (entry: RawRecord) => unknown,
  key: string | undefined,
): (entry: RawRecord) => OrderImport {
  const parseOrder = createOrderParser();
  let isFirst = true;
  return (entry) => {
    const order = read(entry);
    if (isFirst && key === undefined) requireKey(order);
    isFirst = false;
    return parseOrder(order, lineKey(key, entry));
  };
}

/**
 * Drops what a file of rejected records has in addition, and a key that is not used.
 * @throws {AppError} invalid if the record is the text of a line that still has to be corrected
 */
function withoutMarks(record: unknown): unknown {
  if (hasMember(record, TEXT_FIELD)) {
    failField(TEXT_FIELD, "must be replaced by the fields of the record");
  }
  if (hasMember(record, ERROR_FIELD)) {
    const { [ERROR_FIELD]: _, ...others } = record;
    return withoutMarks(others);
  }
  if (hasMember(record, "import_key") && hasId(record)) {
    const { import_key: _, ...others } = record;
    return others;
  }
  return record;
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

/** @returns e.g. `Skipped unknown fields: phone, items.color` */
function describeSkipped(fields: ReadonlySet<string>): string {
  const listed = [...fields].slice(0, MAX_LISTED_FIELDS).join(", ");
  return `Skipped unknown fields: ${listed}${fields.size > MAX_LISTED_FIELDS ? " …" : ""}`;
}

async function importAll(
  { bulk }: Store,
  { table, format, key, dryRun = false, ignoreUnknown = false }: ImportJob,
  input: InputStream,
  rejects: OutputStream | null,
  counts: ImportCounts,
  system: CommandSystem,
): Promise<void> {
  using progress = createProgress(system, input.size);
  const rejected = createRejections(progress, rejects, key, counts);
  /** Names of fields, of which the input can have any number. */
  const skipped = new Set<string>();
  const onUnknown = (field: string) => {
    if (skipped.size <= MAX_LISTED_FIELDS) skipped.add(field);
  };
  const chunks = readUntilStopped(input, progress, stopSignal(system));
  const parts =
    format === "csv" ? readCsv(chunks, { table, ignoreUnknown, onUnknown }) : readNdjson(chunks);
  const read = (entry: RawRecord) => {
    const record = withoutMarks(entry.parse());
    return ignoreUnknown ? removeUnknownFields(record, importSchemas[table], onUnknown) : record;
  };
  try {
    if (table === "users") {
      const parseUser = createUserParser();
      const parse = (entry: RawRecord) => parseUser(read(entry));
      await importRecords(parts, parse, bulk.users, dryRun, counts, rejected);
    } else {
      const parse = createOrderEntryParser(read, key);
      await importRecords(parts, parse, bulk.orders, dryRun, counts, rejected);
    }
    rejected.finishFile();
  } finally {
    rejected.noteOthers();
    if (skipped.size > 0) progress.note(describeSkipped(skipped));
  }
}

/** @returns the error that the operator reads */
function describeFailure(
  error: unknown,
  { path, dryRun }: ImportJob,
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
  { table, dryRun, rejects }: ImportJob,
): string {
  const records = formatCount(created, table === "users" ? "user" : "order");
  const others = `${formatNumber(unchanged)} unchanged, ${formatNumber(rejected)} rejected`;
  const file = rejected > 0 && rejects !== undefined ? `; rejected records are in ${rejects}` : "";
  return `${dryRun ? "Would import" : "Imported"} ${records} (${others})${file}`;
}

/**
 * Reads users or orders from a file or from stdin and stores them. A server may be running.
 * @throws {AppError} operator if records were rejected, or the import stopped early
 */
export async function importTable(
  system: CommandSystem,
  table: BulkTable,
  file: string | undefined,
  options: ImportOptions,
): Promise<void> {
  const path = streamPath(file);
  const format = formatFor(options.format, path);
  const job = { ...options, table, format, path };
  requireValidKey(job);
  const input = system.openInput(path);
  if (input.isTerminal) {
    const expected = format === "csv" ? "CSV with a header line" : "one JSON object per line";
    system.stderr(`Reading ${table} from the terminal: ${expected}. Press Ctrl-D to finish.\n`);
  }
  if (options.rejects !== undefined) {
    const { databaseUrl } = readConfig(system.environment, system.flags);
    requireNoDatabaseFile(options.rejects, databaseUrl);
  }
  using rejects = options.rejects === undefined ? null : system.openOutput(options.rejects, null);
  const counts: ImportCounts = { created: 0, unchanged: 0, rejected: 0 };
  await withStore(
    system,
    options.dryRun ? { readOnly: true } : { create: true },
    async (store, config) => {
      try {
        await importAll(store, job, input, rejects, counts, system);
      } catch (error) {
        throw describeFailure(error, job, config, counts);
      }
    },
  );
  const message = summarize(counts, job);
  if (counts.rejected > 0) fail("operator", message);
  system.stderr(`${message}\n`);
}
