/** What a dry run of an import remembers. Each batch is planned as if the earlier ones had been stored. */

/** Numbers by name: the id of the record with a key, and in a dry run the hashes of records. */
export interface Numbers {
  get(name: string): number | undefined;
  set(name: string, value: number): unknown;
}

/** Takes about 150 bytes per record: it has hashes of the names. */
export function createDryRunMemory(): Numbers {
  const numbers = new Map<number, number>();
  const hashOf = (name: string) => Number(Bun.hash.xxHash64(name) >> 11n);
  return {
    get: (name) => numbers.get(hashOf(name)),
    set: (name, number) => numbers.set(hashOf(name), number),
  };
}
