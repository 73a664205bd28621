/** What one run of an import remembers of the batches that it has planned. */
import { sortMembers } from "../base/json.ts";

/** Hashes of records are below this number. 2^25 lines times as many are below 2^53. */
const HASHES = 2 ** 28;

/** The line of a record in the file, and its hash. One number takes a third of the memory. */
export type Met = number;

/** Equal records have the same hash, whatever the order of their members. */
export function metOf(line: number, record: object): Met {
  const hash = Bun.hash.xxHash32(JSON.stringify(sortMembers(record)));
  return Math.min(line, 2 ** 25 - 1) * HASHES + (hash % HASHES);
}

export function lineOf(met: Met): number {
  return Math.floor(met / HASHES);
}

export function isEqualRecord(met: Met, other: Met): boolean {
  return met % HASHES === other % HASHES;
}

export type ImportRun = ReturnType<typeof createImportRun>;

/** An import of 1,000,000 users takes 200 MB more with it. */
export function createImportRun() {
  return {
    /** The records of earlier batches, by the ids of the stored ones that they are. */
    met: new Map<number, Met>(),
    /** Those of the last batch. It may be planned again if its transaction fails. */
    batch: { lines: [] as readonly number[], met: new Map<number, Met>() },
    /** Why records are rejected, by a key, an id or a stored record that different ones have in common. */
    contested: new Map<string, string>(),
    /** Of a dry run: ids by their keys; 0 if no record has the key any more. */
    ids: new Map<string, number>(),
    lastId: 0,
  };
}
