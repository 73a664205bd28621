/** The plan of an import: which records are created, unchanged or rejected. */

import { hasMember, sortMembers } from "../base/json.ts";
import type { Schema } from "../base/schema.ts";
import type { BulkStore, ImportResult } from "./bulk.ts";
import type { ChangeType } from "./change.ts";
import type { CopiedTable, CopyRow } from "./copy.ts";
import type { RecordTable } from "./record.ts";

const created: ImportResult = { outcome: "created" };
const unchanged: ImportResult = { outcome: "unchanged" };

function rejected(reason: string): ImportResult {
  return { outcome: "rejected", reason };
}

/**
 * Largest gap between the last id and an imported one. SQLite counts every skipped id inside the write
 * transaction, which takes 0.2 s for this many.
 */
const MAX_ID_GAP = 2 ** 24;

/** @returns the reason for rejecting the id if the gap is too large, otherwise `null` */
export function idGapProblem(id: number, last: number): string | null {
  if (id <= last + MAX_ID_GAP) return null;
  return `id must be at most ${MAX_ID_GAP} beyond the last one, ${last}`;
}

/** A record that an import creates. */
interface NewRecord<Row> {
  readonly row: Row;
  /** @see ImportedTable.keyOf */
  readonly key: string | null;
}

/**
 * A table that an import writes: what differs between users and orders.
 */
export interface ImportedTable<Row, Import> {
  readonly table: RecordTable;
  readonly schema: Schema;
  /** The change of a record that an import creates. */
  readonly created: ChangeType;
  /** A record in messages, e.g. `user`. */
  readonly noun: string;
  /** @returns the whole record. The id and the time are for a record without an id. @param userId of `userOf` */
  complete(record: Import, id: number, time: string, userId: number | null): Row;
  /** @returns the text that is unique besides the id: the email key, or the import key; `null` for none */
  keyOf(record: Import): string | null;
  /** @returns the reason for rejecting a record whose key belongs to the record with this id */
  describeKeyConflict(id: number, key: string): string;
  /**
   * @param record the imported one, which `row` is or is compared with
   * @returns the fields by which a record without an id is recognized as the one that has its key
   */
  contentOf(row: Row, record: Import): object;
  /** @returns the user that must exist: an id, or the key of an email; `null` for none */
  userOf(record: Import): number | string | null;
  /** The rows of a record, in the order in which the tables must be written; `null` for none. */
  readonly inserts: readonly {
    readonly table: CopiedTable;
    readonly toRow: (record: NewRecord<Row>) => CopyRow | null;
  }[];
}

/** The stored records, as the transaction of the import sees them. */
export interface StoredRecords<Row> {
  /** The last assigned id; 0 if there is none. */
  readonly lastId: number;
  /** @returns the record with this id; `null` if there is none */
  get(id: number): Row | null;
  /** @returns the id of the record with this key; `null` if there is none */
  idOf(key: string): number | null;
  hasUser(id: number): boolean;
  /** @returns the id of the user whose email has this key; `null` if there is none */
  userWithEmail(key: string): number | null;
}

/** Decides on the records of a batch. @param stored is called synchronously */
export type PlanImport<Row, Import> = (
  records: readonly Import[],
  stored: StoredRecords<Row>,
) => {
  /** In the order of the records. */
  readonly results: readonly ImportResult[];
  readonly newRecords: readonly NewRecord<Row>[];
  /** The last assigned id after the inserts. */
  readonly lastId: number;
};

/** Hashes a value for comparison, independent of the order of members. */
function hash(value: object): number {
  return Bun.hash.xxHash32(JSON.stringify(sortMembers(value)));
}

/**
 * What a dry run remembers of the records that it would have created, about 150 bytes of each. Hashes are enough, because
 * only records with the same id or key are compared.
 */
function createDryRunMemory() {
  const ids = new Map<number, number>();
  const hashOf = (key: string) => Number(Bun.hash.xxHash64(key) >> 11n);
  return {
    /** By id. */
    record: new Map<number, number>(),
    content: new Map<number, number>(),
    lastId: 0,
    idOf: (key: string) => ids.get(hashOf(key)),
    addKey: (key: string, id: number) => ids.set(hashOf(key), id),
  };
}

/** @returns a table without records, for dry runs only */
export function createEmptyTable<Row extends { readonly id: number }, Import>(
  rules: ImportedTable<Row, Import>,
  now: () => Date,
): BulkStore<Import> {
  const plan = createImportPlanner(rules, () => now().toISOString(), true);
  const none = () => null;
  const stored = { lastId: 0, get: none, idOf: none, hasUser: () => false, userWithEmail: none };
  return { import: async (records) => plan(records, stored).results };
}

/**
 * Creates a planner for one batch, or for all batches of a dry run, each of which is planned as if the earlier ones had
 * been stored.
 */
export function createImportPlanner<Row extends { readonly id: number }, Import>(
  rules: ImportedTable<Row, Import>,
  timestamp: () => string,
  isDryRun: boolean,
): PlanImport<Row, Import> {
  const memory = isDryRun ? createDryRunMemory() : null;

  return (records, stored) => {
    const newRecords = new Map<number, NewRecord<Row>>();
    const keys = new Map<string, number>();
    const time = timestamp();
    let lastId = Math.max(stored.lastId, memory?.lastId ?? 0);

    /** @returns whether the record with this id has the same `part`; `null` if there is no such record */
    function compare(
      id: number,
      row: Row,
      record: Import,
      part: "record" | "content",
    ): boolean | null {
      const partOf = (whole: Row) => (part === "record" ? whole : rules.contentOf(whole, record));
      const other = newRecords.get(id)?.row ?? stored.get(id);
      if (other !== null) return Bun.deepEquals(partOf(other), partOf(row), true);
      const known = memory?.[part].get(id);
      return known === undefined ? null : known === hash(partOf(row));
    }

    /** @returns the id of the record with this key; `null` if there is none */
    function ownerOf(key: string): number | null {
      return keys.get(key) ?? memory?.idOf(key) ?? stored.idOf(key);
    }

    function add(row: Row, key: string | null, record: Import): void {
      newRecords.set(row.id, { row, key });
      if (key !== null) keys.set(key, row.id);
      lastId = Math.max(lastId, row.id);
      if (memory === null) return;
      memory.record.set(row.id, hash(row));
      memory.content.set(row.id, hash(rules.contentOf(row, record)));
      if (key !== null) memory.addKey(key, row.id);
      memory.lastId = lastId;
    }

    function importOne(record: Import): ImportResult {
      const user = rules.userOf(record);
      const userId = typeof user === "string" ? stored.userWithEmail(user) : user;
      if (user !== userId && userId === null) {
        return rejected("user_email must be the email of an existing user");
      }
      const row = rules.complete(record, lastId + 1, time, userId);
      const { id } = row;
      const isSame = compare(id, row, record, "record");
      if (isSame === true) return unchanged;
      if (isSame === false)
        return rejected(`${rules.noun} ${id} already exists with different values`);
      const key = rules.keyOf(record);
      const ownerId = key === null ? null : ownerOf(key);
      if (key !== null && ownerId !== null) {
        if (!hasMember(record, "id") && compare(ownerId, row, record, "content") === true)
          return unchanged;
        return rejected(rules.describeKeyConflict(ownerId, key));
      }
      if (typeof user === "number" && !stored.hasUser(user)) {
        return rejected("user_id must be an existing user");
      }
      const gap = idGapProblem(id, lastId);
      if (gap !== null) return rejected(gap);
      add(row, key, record);
      return created;
    }

    const results = records.map(importOne);
    return { results, newRecords: [...newRecords.values()], lastId };
  };
}
