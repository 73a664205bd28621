import { verifyFile } from "../base/checksum.ts";
import { formatCount, formatNumber } from "../base/count-text.ts";
import { AppError, fail, failField, messageOf } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { escapeInvisible } from "../base/readable-text.ts";
import { removeUnknownFields, unknownField } from "../base/validator.ts";
import type { BulkStore, ImportOptions, ImportResult } from "../domain/bulk.ts";
import { createOrderParser, createUserParser } from "../domain/import-rules.ts";
import { createImportRun } from "../domain/import-run.ts";
import type { RecordTable } from "../domain/record.ts";
import type { Store } from "../domain/store.ts";
import { readCsv } from "./files/csv.ts";
import * as files from "./files/file-format.ts";
import { readNdjson } from "./files/ndjson.ts";
import { createRejections } from "./files/rejections.ts";
import { type CommandSystem, type OutputStream, withStore } from "./system/system.ts";

const MAX_LISTED = 20;

/** Maximum records per transaction: the writes of a running server wait for it. */
const BATCH_RECORDS = 5000;
const BATCH_BYTES = 2 * 2 ** 20;

/** Called in the order of the file. */
type OnResult = (entry: files.RawRecord, result: ImportResult) => void;

type ImportCounts = Record<ImportResult["outcome"], number>;

export interface ImportCommandOptions extends ImportOptions {
  readonly format?: files.FileFormat;
  readonly ignoreUnknown?: boolean;
  readonly rejects?: string;
}

interface ImportJob extends ImportCommandOptions {
  readonly table: RecordTable;
  readonly format: files.FileFormat;
  /** `null` for stdin. */
  readonly path: string | null;
  readonly input: AsyncIterable<Uint8Array>;
  readonly rejectsFile: OutputStream | null;
}

function describeFailure(error: unknown, { path, dryRun }: ImportJob, counts: ImportCounts) {
  if (!(error instanceof AppError)) return error;
  const isOfInput = error.code === "validation_failed";
  const subject = isOfInput ? `Cannot read ${path ?? "the input"}: ` : "";
  const isSaved = !dryRun && counts.created + counts.updated + counts.unchanged > 0;
  const advice = isSaved ? ". Earlier batches were saved; run the command again to continue" : "";
  const code = isOfInput ? "operator" : error.code;
  return new AppError(code, `${subject}${messageOf(error)}${advice}`);
}

function createReport(rejects: OutputStream | null) {
  const counts: ImportCounts = { created: 0, updated: 0, erased: 0, unchanged: 0, rejected: 0 };
  const rejections = createRejections();
  const skipped = new Set<string>();
  const add: OnResult = (entry, result) => {
    counts[result.outcome] += 1;
    if (result.outcome !== "rejected") return;
    const line = `line ${entry.line}`;
    rejections.add(line, result.reason);
    if (counts.rejected === 1) rejects?.write(entry.header);
    rejects?.write(entry.withError(`${line}: ${result.reason}`));
  };
  function skip(field: string): void {
    if (skipped.size <= MAX_LISTED) skipped.add(field);
  }
  function print({ stderr }: CommandSystem): void {
    stderr(rejections.text());
    if (skipped.size === 0) return;
    const listed = [...skipped].slice(0, MAX_LISTED).join(", ");
    const more = skipped.size > MAX_LISTED ? " …" : "";
    stderr(`${escapeInvisible(`Skipped unknown fields: ${listed}${more}`)}\n`);
  }
  return { counts, add, skip, print };
}

/** In the words of the file rather than of an HTTP request. */
function problemsOf(error: unknown): string {
  if (!(error instanceof AppError) || error.code !== "validation_failed") throw error;
  const problems = error.problems
    .map(({ field, problem }) => `${field === "body" ? "record" : field} ${problem}`)
    .join("; ");
  const hasUnknown = error.problems.some(({ problem }) => problem === unknownField);
  return hasUnknown ? `${problems} (--ignore-unknown skips unknown fields)` : problems;
}

async function importBatches<Given>(
  entries: AsyncIterable<files.RawRecord>,
  parse: (entry: files.RawRecord) => Given,
  store: BulkStore<Given>,
  options: ImportOptions,
  onResult: OnResult,
): Promise<void> {
  /** Each with its record, or with why it has none. */
  const batch: (readonly [files.RawRecord, Given | null, ImportResult | null])[] = [];
  const run = createImportRun();
  let size = 0;

  async function flush(): Promise<void> {
    const valid = batch.filter(([, , rejected]) => rejected === null);
    const lines = valid.map(([{ line }]) => line);
    const records = valid.map(([, record]) => record as Given);
    const results = (await store.import(records, { ...options, run, lines })).values();
    for (const [entry, , rejected] of batch.splice(0)) {
      const result = rejected ?? results.next().value;
      if (result === undefined) throw new Error("the import of a batch lacks a result");
      onResult(entry, result);
    }
    size = 0;
  }

  for await (const entry of entries) {
    try {
      batch.push([entry, parse(entry), null]);
    } catch (error) {
      batch.push([entry, null, { outcome: "rejected", reason: problemsOf(error) }]);
    }
    size += entry.size;
    if (batch.length >= BATCH_RECORDS || size >= BATCH_BYTES) await flush();
  }
  await flush();
}

/** @throws {AppError} validation_failed if the record is the text of a line that still has to be corrected */
function withoutMarks(record: unknown): unknown {
  if (hasMember(record, files.TEXT_FIELD))
    failField(files.TEXT_FIELD, "format", "must be replaced by the fields of the record");
  if (hasMember(record, files.ERROR_FIELD)) {
    const { [files.ERROR_FIELD]: _, ...others } = record;
    return others;
  }
  return record;
}

async function importAll(bulk: Store["bulk"], job: ImportJob, system: CommandSystem) {
  const { table, format, input, rejectsFile } = job;
  const { counts, add, skip, print } = createReport(rejectsFile);
  const onUnknown = job.ignoreUnknown ? skip : null;
  let inputBytes = 0;
  async function* countBytes(): AsyncGenerator<Uint8Array> {
    for await (const chunk of input) {
      inputBytes += chunk.length;
      yield chunk;
    }
  }
  const chunks = countBytes();
  const entries = format === "csv" ? readCsv(chunks, table, onUnknown) : readNdjson(chunks);
  const read = (entry: files.RawRecord) => {
    const record = withoutMarks(entry.parse());
    return onUnknown ? removeUnknownFields(record, files.importSchemas[table], onUnknown) : record;
  };
  async function run<Given>(store: BulkStore<Given>, parse: (value: unknown) => Given) {
    await importBatches(entries, (entry) => parse(read(entry)), store, job, add);
  }
  try {
    if (table === "users") await run(bulk.users, createUserParser());
    else await run(bulk.orders, createOrderParser());
    if (inputBytes > 0 && Object.values(counts).every((count) => count === 0))
      fail("validation_failed", "it has no records");
    // Without a rejected record there is no file.
    if (counts.rejected > 0) rejectsFile?.finish();
    return counts;
  } catch (error) {
    throw describeFailure(error, job, counts);
  } finally {
    print(system);
  }
}

function summarize(counts: ImportCounts, { table, update, dryRun, rejects }: ImportJob): string {
  const records = formatCount(counts.created, table === "users" ? "user" : "order");
  const outcomes = [
    ...(update ? (["updated"] as const) : []),
    ...(counts.erased > 0 ? (["erased"] as const) : []),
    ...(["unchanged", "rejected"] as const),
  ];
  const others = outcomes.map((outcome) => `${formatNumber(counts[outcome])} ${outcome}`);
  const hasFile = counts.rejected > 0 && rejects !== undefined;
  const file = hasFile ? `; rejected records are in ${rejects}` : "";
  return `${dryRun ? "Would import" : "Imported"} ${records} (${others.join(", ")})${file}`;
}

/** A server may be running. @throws {AppError} operator if records were rejected, or the import stopped early */
export async function importTable(
  system: CommandSystem,
  table: RecordTable,
  file: string | undefined,
  options: ImportCommandOptions,
): Promise<void> {
  const path = files.streamPath(file);
  const format = files.formatFor(options.format, path);
  const input = system.openInput(path);
  if (path !== null) await verifyFile(path);
  const { databaseUrl } = system.config;
  using rejectsFile =
    options.rejects === undefined ? null : system.openOutput(options.rejects, false, databaseUrl);
  const job = { ...options, table, format, path, input, rejectsFile };
  const use = options.dryRun ? ({ mode: "read" } as const) : { create: true };
  const counts = await withStore(system, use, ({ bulk }) => importAll(bulk, job, system));
  const message = summarize(counts, job);
  if (counts.rejected > 0) fail("operator", message);
  system.stderr(`${message}\n`);
}
