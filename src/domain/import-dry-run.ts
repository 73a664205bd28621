/** Dry runs of an import. Each batch is planned as if the earlier ones had been stored. */

import { sortMembers } from "../base/json.ts";
import type { BulkStore } from "./bulk.ts";
import {
  type DryRunMemory,
  type ImportedRow,
  type ImportedTable,
  planImport,
  type UniqueKey,
} from "./import-plan.ts";

/** Hashes a value for comparison, independent of the order of members. */
function hash(value: object): number {
  return Bun.hash.xxHash32(JSON.stringify(sortMembers(value)));
}

/** Takes about 150 bytes per record. Hashes are enough, because only records with the same id or key are compared. */
export function createDryRunMemory(): DryRunMemory {
  const hashes = { record: new Map<number, number>(), content: new Map<number, number>() };
  const ids = new Map<number, number>();
  const hashOf = (key: UniqueKey) => Number(Bun.hash.xxHash64(key.join(" ")) >> 11n);
  return {
    lastId: 0,
    has: (id) => hashes.record.has(id),
    idOf: (key) => ids.get(hashOf(key)) ?? null,
    isSame: (id, part, value) => hashes[part].get(id) === hash(value),
    add(id, keys, { record, content }) {
      hashes.record.set(id, hash(record));
      hashes.content.set(id, hash(content));
      for (const key of keys) ids.set(hashOf(key), id);
    },
  };
}

/** @returns a table without records, for dry runs only */
export function createEmptyTable<Row extends ImportedRow, Import extends object>(
  rules: ImportedTable<Row, Import>,
  now: () => Date,
): BulkStore<Import> {
  const memory = createDryRunMemory();
  const none = () => null;
  const stored = { lastId: 0, get: none, idOf: none, emailOf: none, userIdOf: none };
  return {
    async import(records, { update = false } = {}) {
      const options = { time: now().toISOString(), update, memory };
      return planImport(rules, records, stored, options).results;
    },
  };
}
