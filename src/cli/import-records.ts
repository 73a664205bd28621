/** The records of an import: parsed, stored in batches, and listed if they are rejected. */

import { AppError, failField } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { escapeInvisible } from "../base/readable-text.ts";
import { removeUnknownFields, unknownField } from "../base/validator.ts";
import type { BulkStore, ImportOptions, ImportResult } from "../domain/bulk.ts";
import { createOrderParser, createUserParser } from "../domain/import-rules.ts";
import type { Store } from "../domain/store.ts";
import { formatNumber } from "./count-text.ts";
import {
  type BulkTable,
  ERROR_FIELD,
  importSchemas,
  type OnUnknown,
  type RawRecord,
  TEXT_FIELD,
} from "./files/file-format.ts";
import type { OutputStream, System } from "./files/system.ts";

/** Maximum records per transaction: the writes of a running server wait for it. */
const BATCH_RECORDS = 5000;
/** Approximate maximum size of a transaction. */
const BATCH_BYTES = 2 * 2 ** 20;
/** Reasons that are listed with their first record; records with other reasons are only counted. */
const MAX_LISTED_REASONS = 20;

/** The number of records of each outcome. */
export type ImportCounts = Record<ImportResult["outcome"], number>;

/** @returns the problems of a record, in the words of the file rather than of an HTTP request */
function problemsOf(error: unknown): string {
  if (!(error instanceof AppError) || error.code !== "validation_failed") throw error;
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
 * @param file for the rejected records, which can be imported; `null` for none
 * @param counts its `rejected` is incremented for each
 */
export function createRejectionReport(
  system: Pick<System, "stderr">,
  file: OutputStream | null,
  counts: ImportCounts,
) {
  /** By the reason without its numbers: `user 7` and `user 8` are one. */
  const reasons = new Map<string, { readonly first: string; others: number }>();
  return {
    add(rejections: readonly Rejection[]): void {
      for (const { entry, reason } of rejections) {
        const message = `line ${entry.line}: ${reason}`;
        const kind = reason.replaceAll(/\d+/g, "0");
        const known = reasons.get(kind);
        if (known !== undefined) known.others += 1;
        else if (reasons.size < MAX_LISTED_REASONS)
          reasons.set(kind, { first: message, others: 0 });
        if (counts.rejected === 0) file?.write(entry.header);
        file?.write(entry.withError(message));
        counts.rejected += 1;
      }
    },
    /** Lists the reasons: the first record of each, and how many there are. */
    print(): void {
      const note = (line: string) => system.stderr(`${escapeInvisible(line)}\n`);
      let unlisted = counts.rejected;
      for (const { first, others } of reasons.values()) {
        note(others === 0 ? first : `${first} (and ${formatNumber(others)} more like it)`);
        unlisted -= 1 + others;
      }
      if (unlisted > 0) note(`… and ${formatNumber(unlisted)} more`);
    },
  };
}

type ReportRejections = ReturnType<typeof createRejectionReport>["add"];

/** Imports records in batches. */
async function importBatches<Given>(
  entries: AsyncIterable<RawRecord>,
  parse: (entry: RawRecord) => Given,
  store: BulkStore<Given>,
  options: ImportOptions,
  counts: ImportCounts,
  report: ReportRejections,
): Promise<void> {
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
    const results = await store.import(records, options);
    for (const [index, { entry }] of batch.entries()) {
      const result = results[index];
      if (result === undefined) throw new Error("the import of a batch lacks a result");
      if (result.outcome === "rejected") rejections.push({ entry, reason: result.reason });
      else counts[result.outcome] += 1;
    }
    rejections.sort((left, right) => left.entry.line - right.entry.line);
    report(rejections);
    batch = [];
    rejections = [];
    size = 0;
  }

  for await (const entry of entries) {
    add(entry);
    if (batch.length + rejections.length >= BATCH_RECORDS || size >= BATCH_BYTES) await flush();
  }
  await flush();
}

/**
 * Drops what a file of rejected records has in addition.
 * @throws {AppError} validation_failed if the record is the text of a line that still has to be corrected
 */
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

/** Imports all records of an input. */
export async function importRecords(
  bulk: Store["bulk"],
  entries: AsyncIterable<RawRecord>,
  table: BulkTable,
  options: ImportOptions,
  onUnknown: OnUnknown | null,
  counts: ImportCounts,
  report: ReportRejections,
): Promise<void> {
  const read = (entry: RawRecord) => {
    const record = withoutMarks(entry.parse());
    if (onUnknown === null) return record;
    return removeUnknownFields(record, importSchemas[table], onUnknown);
  };
  async function run<Given>(store: BulkStore<Given>, parse: (value: unknown) => Given) {
    await importBatches(entries, (entry) => parse(read(entry)), store, options, counts, report);
  }
  if (table === "users") await run(bulk.users, createUserParser());
  else await run(bulk.orders, createOrderParser());
}
