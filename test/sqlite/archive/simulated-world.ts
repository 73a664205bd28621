/** What the servers of a simulation share, and what is known of it from outside. */

import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { chunkKey, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { type History, readCatalog, readEnd } from "../../../src/sqlite/archive/read/catalog.ts";
import { text } from "../../object-storage/contract.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";

/** A part of the protocol that is left out. */
export interface Mutation {
  /** Changes what servers do to the storage. */
  readonly storage?: (storage: ObjectStorage) => ObjectStorage;
  readonly acknowledgesOutOfOrder?: true;
  /** An earlier state that was restored replaces the archive, wherever that ends. */
  readonly ignoresIntent?: true;
  readonly sealsNothing?: true;
  readonly trustsFirstBase?: true;
  readonly confirmsNothing?: true;
  /** Retention deletes all objects of earlier generations with this prefix. */
  readonly expires?: string;
}

export type World = ReturnType<typeof createWorld>;

async function readWords(storage: ObjectStorage, { base, segments }: History): Promise<string[]> {
  const words: string[] = JSON.parse(text(await storage.get(chunkKey(base, 0))) ?? "[]");
  for (const segment of segments) {
    const isOlder = segment.generation === base.generation && segment.number <= base.last.number;
    if (isOlder) continue;
    const slot = text(await storage.get(slotKey(segment))) ?? "";
    words.push(slot.slice(slot.indexOf("\n", slot.indexOf("\n") + 1) + 1));
  }
  return words;
}

export function createWorld(random: (below: number) => number, mutation: Mutation) {
  const problems: string[] = [];
  /** All that an operator has not taken back. */
  const acknowledged = new Set<string>();
  /** By generation, up to which segment one that is stored says that all are. */
  const marks = new Map<number, number>();
  const memory = createMemoryStorage();
  let removals = 0;
  let names = 0;
  let acknowledgements = 0;
  let nowMs = 0;
  return {
    random,
    mutation,
    problems,
    acknowledged,
    marks,
    acknowledgements: () => acknowledgements,
    storage: {
      ...memory,
      remove(keys: readonly string[]) {
        removals += 1;
        return memory.remove(keys);
      },
    },
    now: () => nowMs,
    tick() {
      nowMs += 1;
    },
    newName: (kind: string) => `${kind}${++names}`,
    report: (problem: string) => void problems.push(problem),
    acknowledge(word: string) {
      acknowledgements += 1;
      acknowledged.add(word);
    },
    takeBack(words: readonly string[]) {
      for (const word of words) acknowledged.delete(word);
    },
    mark(generation: number, number: number) {
      marks.set(generation, Math.max(number, marks.get(generation) ?? 0));
    },
    /** @returns the newest state. It is not restored while what it needs expires: that takes days */
    async restore(storage: ObjectStorage) {
      for (;;) {
        const before = removals;
        const catalog = await readCatalog(storage);
        const { history, tail } = await readEnd(storage, catalog);
        const loss = history?.loss ?? tail?.loss ?? null;
        const words = history === null || loss !== null ? [] : await readWords(storage, history);
        if (before === removals) return { catalog, history, tail, loss, words };
      }
    },
  };
}
