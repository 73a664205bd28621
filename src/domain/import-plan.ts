/** The plan of an import: which records are created, updated, unchanged or rejected. */

import { AppError } from "../base/error.ts";
import { sortMembers } from "../base/json.ts";
import type { Schema } from "../base/schema.ts";
import type { BulkStore, ImportResult } from "./bulk.ts";
import type { ChangeType } from "./change.ts";
import type { CopyRow } from "./copy.ts";
import { latestOf, type RecordTable } from "./record.ts";

const unchanged: ImportResult = { outcome: "unchanged" };

/** @param user the key of the user that a record names */
function unknownUser([field]: UniqueKey): ImportResult {
  return rejected(`user_${field} must be the ${field} of an existing user`);
}

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

/** The domain of emails of users who were erased (docs/personal-data.md). */
const ERASED = /@erased\.invalid$/i;

/** A field whose values are unique besides the ids. Emails are compared by their keys. */
export type UniqueField = "reference" | "email";
export type UniqueKey = readonly [field: UniqueField, key: string];

export interface ImportedRow {
  readonly id: number;
  readonly reference: string | null;
  readonly version: number;
  readonly updated_at: string;
}

/**
 * A table that an import writes: what differs between users and orders.
 */
export interface ImportedTable<Row, Import> {
  readonly table: RecordTable;
  readonly schema: Schema;
  /** The changes of records that an import creates and updates. */
  readonly created: ChangeType;
  readonly updated: ChangeType;
  /** @returns the columns of a record */
  toRow(row: Row): CopyRow;
  /** A record in messages, e.g. `user`. */
  readonly noun: string;
  /** @returns the user that must exist: an id, or a key; `null` for none */
  userOf(record: Import): number | UniqueKey | null;
  /** @returns the unique values, in the order in which they recognize a record without an id */
  keysOf(record: Row | Import): readonly UniqueKey[];
  /** @returns the whole record. The id and the time are for a record without an id. @param userId of `userOf` */
  complete(record: Import, id: number, time: string, userId: number | null): Row;
  /** @returns the fields that must be equal for a record without an id to be the one that has its key */
  contentOf(row: Row, record: Import): object;
  /**
   * @returns the stored record with the fields that the imported one has
   * @throws {AppError} if they cannot change like this
   */
  merge(stored: Row, record: Import, userId: number | null): Row;
  /** @returns the email of the person whom the record is about. If the person was erased, no import updates the record */
  personOf(row: Row, emailOf: StoredRecords<Row>["emailOf"]): string | null;
}

/** The stored records, as the transaction of the import sees them. */
export interface StoredRecords<Row> {
  /** The last assigned id; 0 if there is none. */
  readonly lastId: number;
  /** @returns the record with this id; `null` if there is none */
  get(id: number): Row | null;
  /** @returns the id of the record with this key; `null` if there is none */
  idOf(key: UniqueKey): number | null;
  /** @returns the email of the user with this id; `null` if there is none */
  emailOf(userId: number): string | null;
  /** @returns the id of the user with this key; `null` if there is none */
  userOf(key: UniqueKey): number | null;
}

/**
 * Decides on the records of a batch.
 * @param stored is called synchronously
 * @param update whether a record that exists with other content is updated, not rejected
 */
export type PlanImport<Row, Import> = (
  records: readonly Import[],
  stored: StoredRecords<Row>,
  update?: boolean,
) => {
  /** In the order of the records. */
  readonly results: readonly ImportResult[];
  readonly created: readonly Row[];
  readonly updated: readonly { readonly before: Row; readonly after: Row }[];
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
  const hashOf = (key: UniqueKey) => Number(Bun.hash.xxHash64(key.join(" ")) >> 11n);
  return {
    /** By id. */
    record: new Map<number, number>(),
    content: new Map<number, number>(),
    lastId: 0,
    idOf: (key: UniqueKey) => ids.get(hashOf(key)),
    addKey: (key: UniqueKey, id: number) => ids.set(hashOf(key), id),
  };
}

/** @returns a table without records, for dry runs only */
export function createEmptyTable<Row extends ImportedRow, Import extends object>(
  rules: ImportedTable<Row, Import>,
  now: () => Date,
): BulkStore<Import> {
  const plan = createImportPlanner(rules, () => now().toISOString(), true);
  const none = () => null;
  const stored = { lastId: 0, get: none, idOf: none, emailOf: none, userOf: none };
  return {
    import: async (records, { update } = {}) => plan(records, stored, update).results,
  };
}

/**
 * Creates a planner for one batch, or for all batches of a dry run, each of which is planned as if the earlier ones had
 * been stored.
 */
export function createImportPlanner<Row extends ImportedRow, Import extends object>(
  rules: ImportedTable<Row, Import>,
  timestamp: () => string,
  isDryRun: boolean,
): PlanImport<Row, Import> {
  const memory = isDryRun ? createDryRunMemory() : null;

  return (records, stored, update = false) => {
    const created = new Map<number, Row>();
    const updated = new Map<number, { before: Row; after: Row }>();
    const keys = new Map<string, number>();
    const time = timestamp();
    let lastId = Math.max(stored.lastId, memory?.lastId ?? 0);

    /** @returns the record as it is after the import so far; `null` if there is none, or a dry run knows only its hash */
    const get = (id: number) => created.get(id) ?? updated.get(id)?.after ?? stored.get(id);

    /** @returns the id of the record with this key; `null` if there is none */
    function ownerOf(key: UniqueKey): number | null {
      const id = keys.get(key.join(" ")) ?? memory?.idOf(key) ?? stored.idOf(key);
      const changed = id === null ? undefined : updated.get(id)?.after;
      const hasLost = changed && !rules.keysOf(changed).some((other) => Bun.deepEquals(other, key));
      return hasLost ? null : id;
    }

    /** @returns the reason for rejecting a record that would have the key of another one; `null` if none has */
    function conflictOf(row: Row): string | null {
      for (const key of rules.keysOf(row)) {
        const owner = ownerOf(key);
        if (owner !== null && owner !== row.id)
          return `${key[0]} is already taken by ${rules.noun} ${owner}`;
      }
      return null;
    }

    function note(row: Row, record: Import): void {
      const rowKeys = rules.keysOf(row);
      for (const key of rowKeys) keys.set(key.join(" "), row.id);
      lastId = Math.max(lastId, row.id);
      if (memory === null) return;
      memory.record.set(row.id, hash(row));
      memory.content.set(row.id, hash(rules.contentOf(row, record)));
      for (const key of rowKeys) memory.addKey(key, row.id);
      memory.lastId = lastId;
    }

    /** @returns the id of the record that the given one is, and by what that is known; `null` if it is new */
    function recognize(record: Import & { readonly id?: number }) {
      const { id } = record;
      if (id !== undefined) {
        const isKnown = get(id) !== null || memory?.record.has(id);
        return isKnown ? { id, field: "id" as const } : null;
      }
      for (const [at, key] of rules.keysOf(record).entries()) {
        const owner = ownerOf(key);
        if (owner === null) continue;
        // The other key is the reference: two people of another system can share an email.
        const isOther = at > 0 && get(owner)?.reference != null;
        return isOther ? null : { id: owner, field: key[0] };
      }
      return null;
    }

    function create(record: Import, row: Row): ImportResult {
      const problem = conflictOf(row) ?? idGapProblem(row.id, lastId);
      if (problem !== null) return rejected(problem);
      created.set(row.id, row);
      note(row, record);
      return { outcome: "created" };
    }

    /** @param before `null` if a dry run knows only its hash */
    function updateStored(before: Row | null, record: Import, userId: number | null): ImportResult {
      if (before === null) return { outcome: "updated" };
      const merged = rules.merge(before, record, userId);
      if (Bun.deepEquals(before, merged, true)) return unchanged;
      const problem = conflictOf(merged);
      if (problem !== null) return rejected(problem);
      const { id } = before;
      const first = updated.get(id)?.before ?? before;
      const version = first.version + 1;
      const after = { ...merged, version, updated_at: latestOf(first.updated_at, time) };
      if (created.has(id)) created.set(id, merged);
      else updated.set(id, { before: first, after });
      note(after, record);
      return { outcome: "updated" };
    }

    /** Whether the record is the stored one, as far as an import compares them. */
    function isSame(id: number, row: Row, record: Import, part: "record" | "content"): boolean {
      const partOf = (whole: Row) => (part === "record" ? whole : rules.contentOf(whole, record));
      const other = get(id);
      if (other !== null) return Bun.deepEquals(partOf(other), partOf(row), true);
      return memory?.[part].get(id) === hash(partOf(row));
    }

    function importOne(record: Import): ImportResult {
      const known = recognize(record);
      const before = known === null ? null : get(known.id);
      if (update && before !== null && ERASED.test(rules.personOf(before, stored.emailOf) ?? ""))
        return { outcome: "erased" };
      const user = rules.userOf(record);
      const userId = typeof user === "object" && user !== null ? stored.userOf(user) : user;
      if (typeof user === "object" && user !== null && userId === null) return unknownUser(user);
      const row = rules.complete(record, known?.id ?? lastId + 1, time, userId);
      const isById = known?.field === "id";
      if (known !== null && isSame(known.id, row, record, isById ? "record" : "content")) {
        if (!update || isById) return unchanged;
      }
      if (known !== null && !update) {
        const { id, field } = known;
        const reason = isById
          ? `${rules.noun} ${id} already exists with different values`
          : `${field} is already taken by ${rules.noun} ${id}`;
        return { outcome: "rejected", reason, exists: true };
      }
      if (userId !== null && stored.emailOf(userId) === null)
        return rejected("user_id must be an existing user");
      return known === null ? create(record, row) : updateStored(before, record, userId);
    }

    const results = records.map((record) => {
      try {
        return importOne(record);
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return rejected(error.message.replace("Validation failed: ", ""));
      }
    });
    return { results, created: [...created.values()], updated: [...updated.values()], lastId };
  };
}
