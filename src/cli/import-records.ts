/** The records of an import: parsed, stored in batches, and listed if they are rejected. */

import { AppError, failField } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { escapeInvisible } from "../base/readable-text.ts";
import { removeUnknownFields, unknownField } from "../base/validator.ts";
import type { BulkStore } from "../domain/bulk.ts";
import { createOrderParser, createUserParser } from "../domain/import-rules.ts";
import type { Store } from "../domain/store.ts";
import { formatNumber } from "./count-text.ts";
import {
  type BulkTable,
  ERROR_FIELD,
  importSchemas,
  type OnUnknown,
  type RawRecord,
  type RawRecords,
  TEXT_FIELD,
} from "./files/file-format.ts";
import type { OutputStream, System } from "./files/system.ts";

/** Maximum records per transaction: the writes of a running server wait for it. */
const BATCH_RECORDS = 5000;
/** Approximate maximum size of a transaction. */
const BATCH_BYTES = 4 * 2 ** 20;
/** Reasons that are listed with their first record; records with other reasons are only counted. */
const MAX_LISTED_REASONS = 20;

/** How records are imported. */
export interface RecordOptions {
  /** Name of the import. It identifies orders without ids if the import is repeated. */
  readonly key?: string;
  readonly dryRun?: boolean;
}

export interface ImportCounts {
  created: number;
  unchanged: number;
  rejected: number;
  inputBytes: number;
}

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
 * @param key of the import, if it has a name
 * @param counts its `rejected` is incremented for each
 */
export function createRejectionReport(
  system: Pick<System, "stderr">,
  file: OutputStream | null,
  key: string | undefined,
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
        file?.write(entry.withMarks({ import_error: message, import_key: lineKey(key, entry) }));
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
  parts: RawRecords,
  parse: (entry: RawRecord) => Given,
  store: BulkStore<Given>,
  dryRun: boolean,
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
    const results = await store.import(records, dryRun);
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

  for await (const entries of parts) {
    for (const entry of entries) {
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

/**
 * Drops what a file of rejected records has in addition, and a key that is not used.
 * @throws {AppError} validation_failed if the record is the text of a line that still has to be corrected
 */
function withoutMarks(record: unknown): unknown {
  if (hasMember(record, TEXT_FIELD)) {
    failField(TEXT_FIELD, "format", "must be replaced by the fields of the record");
  }
  if (hasMember(record, ERROR_FIELD)) {
    const { [ERROR_FIELD]: _, ...others } = record;
    return withoutMarks(others);
  }
  if (hasMember(record, "import_key") && hasMember(record, "id")) {
    const { import_key: _, ...others } = record;
    return others;
  }
  return record;
}

/** Imports all records of an input. */
export async function importRecords(
  bulk: Store["bulk"],
  parts: RawRecords,
  job: RecordOptions & { readonly table: BulkTable },
  onUnknown: OnUnknown | null,
  counts: ImportCounts,
  report: ReportRejections,
): Promise<void> {
  const { table, key, dryRun = false } = job;
  const read = (entry: RawRecord) => {
    const record = withoutMarks(entry.parse());
    if (onUnknown === null) return record;
    return removeUnknownFields(record, importSchemas[table], onUnknown);
  };
  if (table === "users") {
    const parse = createUserParser();
    const parseEntry = (entry: RawRecord) => parse(read(entry));
    await importBatches(parts, parseEntry, bulk.users, dryRun, counts, report);
  } else {
    const parse = createOrderParser();
    const parseEntry = (entry: RawRecord) => parse(read(entry), lineKey(key, entry));
    await importBatches(parts, parseEntry, bulk.orders, dryRun, counts, report);
  }
}
