/** The records of an import: parsed, and stored in batches. */
import { AppError, failField } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { removeUnknownFields, unknownField } from "../base/validator.ts";
import type { BulkStore, ImportOptions, ImportResult } from "../domain/bulk.ts";
import { createOrderParser, createUserParser } from "../domain/import-rules.ts";
import { createImportRun } from "../domain/import-run.ts";
import type { Store } from "../domain/store.ts";
import {
  type BulkTable,
  ERROR_FIELD,
  importSchemas,
  type OnUnknown,
  type RawRecord,
  TEXT_FIELD,
} from "./files/file-format.ts";

/** Maximum records per transaction: the writes of a running server wait for it. */
const BATCH_RECORDS = 5000;
/** Approximate maximum size of a transaction. */
const BATCH_BYTES = 2 * 2 ** 20;

/** Called in the order of the file. */
export type OnResult = (entry: RawRecord, result: ImportResult) => void;

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
  entries: AsyncIterable<RawRecord>,
  parse: (entry: RawRecord) => Given,
  store: BulkStore<Given>,
  options: ImportOptions,
  onResult: OnResult,
): Promise<void> {
  let batch: { readonly entry: RawRecord; readonly rejected: ImportResult | null }[] = [];
  /** Those of the batch that are valid. */
  let records: Given[] = [];
  let lines: number[] = [];
  const run = createImportRun();
  let size = 0;

  async function flush(): Promise<void> {
    const results = (await store.import(records, { ...options, run, lines })).values();
    for (const { entry, rejected } of batch) {
      const result = rejected ?? results.next().value;
      if (result === undefined) throw new Error("the import of a batch lacks a result");
      onResult(entry, result);
    }
    batch = [];
    records = [];
    lines = [];
    size = 0;
  }

  for await (const entry of entries) {
    try {
      records.push(parse(entry));
      lines.push(entry.line);
      batch.push({ entry, rejected: null });
    } catch (error) {
      batch.push({ entry, rejected: { outcome: "rejected", reason: problemsOf(error) } });
    }
    size += entry.size;
    if (batch.length >= BATCH_RECORDS || size >= BATCH_BYTES) await flush();
  }
  await flush();
}

/** @throws {AppError} validation_failed if the record is the text of a line that still has to be corrected */
function withoutMarks(record: unknown): unknown {
  if (hasMember(record, TEXT_FIELD)) {
    failField(TEXT_FIELD, "format", "must be replaced by the fields of the record");
  }
  if (hasMember(record, ERROR_FIELD)) {
    const { [ERROR_FIELD]: _, ...others } = record;
    return others;
  }
  return record;
}

export async function importRecords(
  bulk: Store["bulk"],
  entries: AsyncIterable<RawRecord>,
  table: BulkTable,
  options: ImportOptions,
  onUnknown: OnUnknown | null,
  onResult: OnResult,
): Promise<void> {
  const read = (entry: RawRecord) => {
    const record = withoutMarks(entry.parse());
    if (onUnknown === null) return record;
    return removeUnknownFields(record, importSchemas[table], onUnknown);
  };
  async function run<Given>(store: BulkStore<Given>, parse: (value: unknown) => Given) {
    await importBatches(entries, (entry) => parse(read(entry)), store, options, onResult);
  }
  if (table === "users") await run(bulk.users, createUserParser());
  else await run(bulk.orders, createOrderParser());
}
