/** Dry runs of an import. Each batch is planned as if the earlier ones had been stored. */

import type { BulkStore } from "./bulk.ts";
import { type ImportedRow, type ImportedTable, type Numbers, planImport } from "./import-plan.ts";

/** Takes about 150 bytes per record: it has hashes of the names. */
export function createDryRunMemory(): Numbers {
  const numbers = new Map<number, number>();
  const hashOf = (name: string) => Number(Bun.hash.xxHash64(name) >> 11n);
  return {
    get: (name) => numbers.get(hashOf(name)),
    set: (name, number) => numbers.set(hashOf(name), number),
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
