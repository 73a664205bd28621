/** The plan of an import: which records are created, updated, unchanged or rejected. */

import { AppError } from "../base/error.ts";
import { sortMembers } from "../base/json.ts";
import type { Schema } from "../base/schema.ts";
import type { ImportOptions, ImportResult } from "./bulk.ts";
import type { ChangeType } from "./change.ts";
import type { CopyRow } from "./copy.ts";
import { createDryRunMemory, type Numbers } from "./import-dry-run.ts";
import { nextVersion, type RecordTable } from "./record.ts";

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

/** A field whose values are unique besides the ids. Emails are compared by their keys. */
type UniqueField = "reference" | "email";
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
  /** The change of a record that an import creates. */
  readonly created: ChangeType;
  /** @returns the columns of a record */
  toRow(row: Row): CopyRow;
  /** A record in messages, e.g. `user`. */
  readonly noun: string;
  /** @returns the user that must exist: an id, or a key; `null` for none */
  namedUserOf(record: Import): number | UniqueKey | null;
  /** @returns the unique values, in the order in which they recognize a record without an id */
  keysOf(record: Row | Import): readonly UniqueKey[];
  /** @returns the whole record. The id and the time are for a record without an id. @param userId of the user that it names */
  complete(record: Import, id: number, time: string, userId: number | null): Row;
  /** @returns the fields that must be equal for a record without an id to be the one that has its key */
  contentOf(row: Row, record: Import): object;
  /**
   * @returns the stored record with the fields that the imported one has
   * @throws {AppError} if they cannot change like this
   */
  merge(stored: Row, record: Import, userId: number | null): Row;
  /** Whether the user, or the one of the order, was erased. Then no import updates the record. */
  isErased(row: Row, emailOf: StoredRecords<Row>["emailOf"]): boolean;
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
  userIdOf(key: UniqueKey): number | null;
}

/** What is compared: all of a record, or its `contentOf`. */
type RecordPart = "record" | "content";

/** A batch of records while it is planned. */
interface Batch<Row, Import = never> {
  readonly rules: ImportedTable<Row, Import>;
  readonly stored: StoredRecords<Row>;
  /** RFC 3339. */
  readonly time: string;
  /** Whether a record that exists with other content is updated, not rejected. */
  readonly update: boolean;
  /** What a dry run remembers of the records in earlier batches; `null` unless it is one. */
  readonly memory: Numbers | null;
  /** By id. */
  readonly created: Map<number, Row>;
  readonly updated: Map<number, { readonly before: Row; readonly after: Row }>;
  /** The ids of these records by their keys; in a dry run, also of earlier ones. */
  readonly ids: Numbers;
  lastId: number;
}

/** @returns the record as it is after the import so far; `null` if there is none, or a dry run knows only its hash */
function recordWithId<Row>({ created, updated, stored }: Batch<Row>, id: number): Row | null {
  return created.get(id) ?? updated.get(id)?.after ?? stored.get(id);
}

/** @returns the id of the record with this key; `null` if there is none */
function ownerOf<Row>(batch: Batch<Row>, key: UniqueKey): number | null {
  const { rules, stored, updated, ids } = batch;
  const id = ids.get(key.join(" ")) ?? stored.idOf(key);
  const changed = id === null ? undefined : updated.get(id)?.after;
  const hasLost = changed && !rules.keysOf(changed).some((other) => Bun.deepEquals(other, key));
  return hasLost ? null : id;
}

/** @returns the reason for rejecting a record that would have the key of another one; `null` if none has */
function conflictOf<Row extends ImportedRow>(batch: Batch<Row>, row: Row): string | null {
  for (const key of batch.rules.keysOf(row)) {
    const owner = ownerOf(batch, key);
    if (owner !== null && owner !== row.id)
      return `${key[0]} is already taken by ${batch.rules.noun} ${owner}`;
  }
  return null;
}

/** Hashes a value for comparison, independent of the order of members. */
function hashOf(value: object): number {
  return Bun.hash.xxHash32(JSON.stringify(sortMembers(value)));
}

function note<Row extends ImportedRow, Import>(
  batch: Batch<Row, Import>,
  row: Row,
  record: Import,
): void {
  const { rules, ids, memory } = batch;
  for (const key of rules.keysOf(row)) ids.set(key.join(" "), row.id);
  batch.lastId = Math.max(batch.lastId, row.id);
  if (memory === null) return;
  memory.set(`record ${row.id}`, hashOf(row));
  memory.set(`content ${row.id}`, hashOf(rules.contentOf(row, record)));
  memory.set("last id", batch.lastId);
}

/** @returns the record that an imported one is, and the field by which that is known; `null` if it is new */
function recognize<Row extends ImportedRow, Import extends object>(
  batch: Batch<Row, Import>,
  record: Import & { readonly id?: number },
): { readonly id: number; readonly field: "id" | UniqueField } | null {
  const { id } = record;
  if (id !== undefined) {
    const isPlanned = batch.memory?.get(`record ${id}`) !== undefined;
    return isPlanned || recordWithId(batch, id) !== null ? { id, field: "id" } : null;
  }
  for (const [at, key] of batch.rules.keysOf(record).entries()) {
    const owner = ownerOf(batch, key);
    if (owner === null) continue;
    // The other key is the reference: two people of another system can share an email.
    const isOther = at > 0 && recordWithId(batch, owner)?.reference != null;
    return isOther ? null : { id: owner, field: key[0] };
  }
  return null;
}

function create<Row extends ImportedRow, Import>(
  batch: Batch<Row, Import>,
  record: Import,
  row: Row,
): ImportResult {
  const problem = conflictOf(batch, row) ?? idGapProblem(row.id, batch.lastId);
  if (problem !== null) return rejected(problem);
  batch.created.set(row.id, row);
  note(batch, row, record);
  return { outcome: "created" };
}

function update<Row extends ImportedRow, Import>(
  batch: Batch<Row, Import>,
  before: Row,
  record: Import,
  userId: number | null,
): ImportResult {
  const { rules, created, updated, time } = batch;
  const merged = rules.merge(before, record, userId);
  if (Bun.deepEquals(before, merged, true)) return unchanged;
  const problem = conflictOf(batch, merged);
  if (problem !== null) return rejected(problem);
  const { id } = before;
  const first = updated.get(id)?.before ?? before;
  const after = created.has(id) ? merged : nextVersion(first, merged, time);
  if (created.has(id)) created.set(id, after);
  else updated.set(id, { before: first, after });
  note(batch, after, record);
  return { outcome: "updated" };
}

/** Whether the record is the one with the id, as far as an import compares them. */
function isSame<Row extends ImportedRow, Import>(
  batch: Batch<Row, Import>,
  id: number,
  row: Row,
  record: Import,
  part: RecordPart,
): boolean {
  const partOf = (whole: Row) => (part === "record" ? whole : batch.rules.contentOf(whole, record));
  const other = recordWithId(batch, id);
  if (other !== null) return Bun.deepEquals(partOf(other), partOf(row), true);
  return batch.memory?.get(`${part} ${id}`) === hashOf(partOf(row));
}

/** @throws {AppError} if the record is rejected */
function importOne<Row extends ImportedRow, Import extends object>(
  batch: Batch<Row, Import>,
  record: Import,
): ImportResult {
  const { rules, stored, time } = batch;
  const known = recognize(batch, record);
  const before = known === null ? null : recordWithId(batch, known.id);
  if (batch.update && before !== null && rules.isErased(before, stored.emailOf))
    return { outcome: "erased" };
  const user = rules.namedUserOf(record);
  const isKey = typeof user === "object" && user !== null;
  const userId = isKey ? stored.userIdOf(user) : user;
  if (isKey && userId === null) return unknownUser(user);
  const row = rules.complete(record, known?.id ?? batch.lastId + 1, time, userId);
  const isById = known?.field === "id";
  if (known !== null && isSame(batch, known.id, row, record, isById ? "record" : "content")) {
    if (!batch.update || isById) return unchanged;
  }
  if (known !== null && !batch.update) {
    const { id, field } = known;
    const problem = isById
      ? `${rules.noun} ${id} already exists with different values`
      : `${field} is already taken by ${rules.noun} ${id}`;
    return rejected(`${problem} (--update changes it)`);
  }
  if (userId !== null && stored.emailOf(userId) === null)
    return rejected("user_id must be an existing user");
  if (known === null) return create(batch, record, row);
  // A dry run knows only the hash of a record that an earlier batch would have created.
  return before === null ? { outcome: "updated" } : update(batch, before, record, userId);
}

export interface ImportPlan<Row> {
  /** In the order of the records. */
  readonly results: readonly ImportResult[];
  readonly created: readonly Row[];
  readonly updated: readonly { readonly before: Row; readonly after: Row }[];
  /** The last assigned id after the inserts. */
  readonly lastId: number;
}

/**
 * @param timestamp returns the time, RFC 3339
 * @returns a function that decides on the records of a batch. It calls `stored` synchronously. In a dry run, earlier
 * batches count as stored
 */
export function createPlanner<Row extends ImportedRow, Import extends object>(
  rules: ImportedTable<Row, Import>,
  timestamp: () => string,
) {
  const dryRunMemory = createDryRunMemory();
  return (
    records: readonly Import[],
    stored: StoredRecords<Row>,
    { update = false, dryRun = false }: ImportOptions = {},
  ): ImportPlan<Row> => {
    const memory = dryRun ? dryRunMemory : null;
    const lastId = Math.max(stored.lastId, memory?.get("last id") ?? 0);
    const given = { rules, stored, time: timestamp(), update, memory };
    const written = { created: new Map(), updated: new Map(), ids: memory ?? new Map(), lastId };
    const batch: Batch<Row, Import> = { ...given, ...written };
    const results = records.map((record) => {
      try {
        return importOne(batch, record);
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return rejected(error.message.replace("Validation failed: ", ""));
      }
    });
    return {
      results,
      created: [...batch.created.values()],
      updated: [...batch.updated.values()],
      lastId: batch.lastId,
    };
  };
}
