import { AppError } from "../base/error.ts";
import type { ImportOptions, ImportResult } from "./bulk.ts";
import type { ImportedRow, ImportRules, StoredRecords, UniqueKey } from "./import-rules.ts";
import { createImportRun, isEqualRecord, lineOf, type Met, metOf } from "./import-run.ts";
import { nextVersion } from "./record.ts";

const unchanged: ImportResult = { outcome: "unchanged" };

function rejected(reason: string): ImportResult {
  return { outcome: "rejected", reason };
}

/** Largest gap between the last id and an imported one. SQLite counts each skipped id in the transaction: 0.2 s for so many. */
const MAX_ID_GAP = 2 ** 24;

export function idGapProblem(id: number, last: number): string | null {
  if (id <= last + MAX_ID_GAP) return null;
  return `id must be at most ${MAX_ID_GAP} beyond the last one, ${last}`;
}

/** A record of the file. It has an id if it was exported. */
type Record = { readonly id?: number; readonly created_at?: string };

/** How a record of the file changes a stored one. `before` is `null` for a new one. */
interface Edit {
  readonly met: Met;
  readonly before: ImportedRow | null;
  readonly row: ImportedRow;
}

type Batch = ReturnType<typeof createBatch<ImportedRow>>;

function createBatch<Row extends ImportedRow>(
  rules: ImportRules<Row, Record>,
  stored: StoredRecords<Row>,
  options: Required<Omit<ImportOptions, "dryRun" | "lines">>,
  time: string,
) {
  return {
    ...{ rules, stored, ...options, time },
    created: new Map<number, Row>(),
    updated: new Map<number, { readonly before: Row; readonly after: Row }>(),
    /** The ids of these records by their keys; 0 for a key that no record has any more. */
    ids: new Map<string, number>(),
    /** By the ids of the stored records that they are, also those that wait for a key. */
    met: new Map<number, Met>(),
    /** Records that are equal to an earlier one, which decides on both. */
    equal: new Map<Met, Met>(),
    /** Those that need a key of another record, which may give it up. */
    waiting: new Map<Met, Edit>(),
    lastId: Math.max(stored.lastId, options.run.lastId),
  };
}

/** @returns the id of the record that has this key after the import so far; `null` if there is none */
function ownerOf({ ids, run, stored }: Batch, key: UniqueKey): number | null {
  const name = key.join(" ");
  return (ids.get(name) ?? run.ids.get(name) ?? stored.idOf(key)) || null;
}

function metBy({ met, run }: Batch, id: number): Met | undefined {
  return met.get(id) ?? run.met.get(id);
}

/**
 * A key that another record of the batch has given up still names the stored one: the order of the records must not decide.
 * @returns the stored record that a record is, and the key by which that is known; `null` if it is new
 */
function recognize(batch: Batch, record: Record) {
  const { rules, stored, created, updated, run } = batch;
  const { id } = record;
  if (id !== undefined) {
    const exists = metBy(batch, id) !== undefined || stored.get(id) !== null;
    return exists ? { id, key: ["id", String(id)] as const } : null;
  }
  for (const [at, key] of rules.keysOf(record).entries()) {
    const name = key.join(" ");
    const owner = (batch.ids.get(name) || run.ids.get(name)) ?? stored.idOf(key);
    if (!owner) continue;
    const row = created.get(owner) ?? updated.get(owner)?.after ?? stored.get(owner);
    // The other key is the reference: two people of another system can share an email.
    return at > 0 && row?.reference != null ? null : { id: owner, key };
  }
  return null;
}

/** Only a person can know which of two records is right. @param id of the stored record that the first of them is */
function contest({ run, created }: Batch, key: readonly string[], id: number, ...both: Met[]) {
  const lines = both
    .map(lineOf)
    .sort((one, other) => one - other)
    .join(" and ");
  const reason = `${key[0]} is that of lines ${lines}, which have different values`;
  run.contested.set(key.join(" "), reason);
  // A new record can get another id when the batch is planned again.
  if (!created.has(id)) run.contested.set(`record ${id}`, reason);
  return rejected(reason);
}

function write(batch: Batch, edit: Edit): ImportResult {
  const { rules, ids, created, updated } = batch;
  const { met, before, row } = edit;
  if (before !== null && Bun.deepEquals(before, row, true)) return unchanged;
  const problem = before === null ? idGapProblem(row.id, batch.lastId) : null;
  if (problem !== null) return rejected(problem);
  for (const key of rules.keysOf(row)) {
    const owner = ownerOf(batch, key);
    if (owner === null || owner === row.id) continue;
    const other = metBy(batch, owner);
    if (other !== undefined && !batch.waiting.has(other))
      return contest(batch, key, owner, other, met);
    batch.waiting.set(met, edit);
    // Another record must not change the stored one, and keep a key that this one gives up.
    batch.met.set(row.id, met);
    return rejected(`${key[0]} is already taken by ${rules.noun} ${owner}`);
  }
  for (const key of before === null ? [] : rules.keysOf(before))
    if (ownerOf(batch, key) === row.id) ids.set(key.join(" "), 0);
  for (const key of rules.keysOf(row)) ids.set(key.join(" "), row.id);
  if (before === null) created.set(row.id, row);
  else updated.set(row.id, { before, after: nextVersion(before, row, batch.time) });
  batch.lastId = Math.max(batch.lastId, row.id);
  batch.waiting.delete(met);
  return { outcome: before === null ? "created" : "updated" };
}

/** Records can exchange keys: marks each one as free whose owner is waiting to give it up, and can change. */
function freeKeys(batch: Batch): void {
  const { rules, ids } = batch;
  const waiting = [...batch.waiting.values()];
  const namesOf = (row: ImportedRow | null) =>
    row === null ? [] : rules.keysOf(row).map((key) => key.join(" "));
  const given = new Map<Edit, readonly string[]>();
  const givers = new Map<string, Edit>();
  for (const edit of waiting) {
    const kept = namesOf(edit.row);
    const names = namesOf(edit.before).filter((name) => !kept.includes(name));
    given.set(edit, names);
    for (const name of names) givers.set(name, edit);
  }
  const takers = new Map<string, Edit[]>();
  const stuck: Edit[] = [];
  for (const edit of waiting) {
    for (const key of rules.keysOf(edit.row)) {
      const owner = ownerOf(batch, key);
      const name = key.join(" ");
      if (owner === null || owner === edit.row.id) continue;
      if (!givers.has(name)) stuck.push(edit);
      else if (!takers.get(name)?.push(edit)) takers.set(name, [edit]);
    }
  }
  for (let edit = stuck.pop(); edit !== undefined; edit = stuck.pop()) {
    for (const name of given.get(edit) ?? []) stuck.push(...(takers.get(name) ?? []));
    given.delete(edit);
  }
  for (const name of [...given.values()].flat()) ids.set(name, 0);
}

function importOne(batch: Batch, given: Record, met: Met): ImportResult {
  const { rules, stored, run, update } = batch;
  const known = recognize(batch, given);
  for (const name of [...rules.keysOf(given), ["id", given.id], ["record", known?.id]]) {
    const reason = run.contested.get(name.join(" "));
    if (reason !== undefined) return rejected(reason);
  }
  const other = known === null ? undefined : metBy(batch, known.id);
  if (known !== null && other !== undefined && other !== met) {
    if (!isEqualRecord(other, met)) return contest(batch, known.key, known.id, other, met);
    batch.equal.set(met, other);
    return unchanged;
  }
  const before = known === null ? null : stored.get(known.id);
  if (update && before !== null && rules.isErased(before, stored.emailOf))
    return { outcome: "erased" };
  const record = before !== null && batch.keepItems ? rules.keepItems(before, given) : given;
  const user = rules.namedUserOf(record);
  const isKey = typeof user === "object" && user !== null;
  const userId = isKey ? stored.userIdOf(user) : user;
  if (isKey && userId === null)
    return rejected(`user_${user[0]} must be the ${user[0]} of an existing user`);
  const row = rules.complete(record, known?.id ?? batch.lastId + 1, batch.time, userId);

  function decide(): ImportResult {
    const [field = ""] = known?.key ?? [];
    const isById = field === "id";
    const partOf = (whole: ImportedRow) => (isById ? whole : rules.contentOf(whole, record));
    const isSame = before !== null && Bun.deepEquals(partOf(before), partOf(row), true);
    if (isSame && (!update || isById)) return unchanged;
    if (before !== null && !update) {
      const problem = isById
        ? `${rules.noun} ${before.id} already exists with different values`
        : `${field} is already taken by ${rules.noun} ${before.id}`;
      return rejected(`${problem} (--update changes it)`);
    }
    if (userId !== null && stored.emailOf(userId) === null)
      return rejected("user_id must be an existing user");
    const after = before === null ? row : rules.merge(before, record, userId);
    return write(batch, { met, before, row: after });
  }
  const result = decide();
  if (result.outcome !== "rejected") batch.met.set(row.id, met);
  return result;
}

/** @returns indexes in the order of planning. New orders get ids by time, so that those of a range of times are consecutive */
function planOrder({ rules, time }: Batch, records: readonly Record[]): readonly number[] {
  const indexes = [...records.keys()];
  if (rules.table === "users" || records.some(({ id }) => id !== undefined)) return indexes;
  const times = records.map(({ created_at = time }) => created_at);
  const compare = (one = "", other = "") => Number(one > other) - Number(one < other);
  return indexes.sort((one, other) => compare(times[one], times[other]));
}

/** Plans the records that need the keys of others again. */
function planBatch(batch: Batch, records: readonly Record[], lines: readonly number[]) {
  const mets = records.map((record, index) => metOf(lines[index] ?? 0, record));
  const results = new Map<Met, ImportResult>();
  const waiting = new Set<Met>();
  const order = planOrder(batch, records);
  function planOne(index: number): void {
    const [record = {}, met = 0] = [records[index], mets[index]];
    if (results.has(met) && !waiting.has(met)) return;
    try {
      results.set(met, importOne(batch, record, met));
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      results.set(met, rejected(error.message.replace("Validation failed: ", "")));
    }
  }
  order.forEach(planOne);
  for (const met of batch.waiting.keys()) waiting.add(met);
  freeKeys(batch);
  if (waiting.size > 0) order.forEach(planOne);
  for (const [met, { row }] of batch.waiting)
    if (batch.met.get(row.id) === met) batch.met.delete(row.id);
  for (const [met, other] of batch.equal) {
    const result = results.get(other);
    if (result?.outcome === "rejected") results.set(met, result);
  }
  return mets.map((met) => results.get(met) ?? unchanged);
}

export interface ImportPlan<Row> {
  /** In the order of the records. */
  readonly results: readonly ImportResult[];
  readonly created: readonly Row[];
  readonly updated: readonly { readonly before: Row; readonly after: Row }[];
  readonly lastId: number;
}

/** It calls `stored` synchronously. In a dry run, earlier batches count as stored. */
export function createPlanner<Row extends ImportedRow, Import extends object>(
  rules: ImportRules<Row, Import>,
  timestamp: () => string,
) {
  return (
    records: readonly Import[],
    stored: StoredRecords<Row>,
    options: ImportOptions = {},
  ): ImportPlan<Row> => {
    const { update = false, dryRun = false, keepItems = false, run = createImportRun() } = options;
    const { lines = records.map((_, at) => at + 1) } = options;
    if (run.batch.lines !== lines) for (const [id, met] of run.batch.met) run.met.set(id, met);
    const time = timestamp();
    for (;;) {
      const contested = run.contested.size;
      const batch = createBatch(rules, stored, { update, keepItems, run }, time);
      const results = planBatch(batch, records, lines);
      // A later record has contested an earlier one.
      if (run.contested.size > contested) continue;
      run.batch = { lines, met: batch.met };
      if (dryRun) for (const [name, id] of batch.ids) run.ids.set(name, id);
      if (dryRun) run.lastId = batch.lastId;
      const { created, updated, lastId } = batch;
      return { results, created: [...created.values()], updated: [...updated.values()], lastId };
    }
  };
}
