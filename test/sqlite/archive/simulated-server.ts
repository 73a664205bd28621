/**
 * A server of the simulation. What it archives are words instead of parts of a write-ahead log: a database is a list of
 * them. The log, the catalog and the retention are those of the program.
 */

import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import type { SegmentHeader } from "../../../src/sqlite/archive/format.ts";
import { encodeJson, type Generation, MAX_SENDING } from "../../../src/sqlite/archive/format.ts";
import {
  baseKey,
  chunkKey,
  generationKey,
  heartbeatKey,
  logPrefix,
  prefixes,
} from "../../../src/sqlite/archive/keys.ts";
import { createLog, createRecord, seal } from "../../../src/sqlite/archive/write/log.ts";
import { deleteExpired } from "../../../src/sqlite/archive/write/retention.ts";
import { bytes } from "../../object-storage/contract.ts";
import type { Process } from "../../support/simulated-network.ts";
import type { Mutation, World } from "./simulated-world.ts";

export interface Disk {
  words: readonly string[];
  names: readonly string[];
  /** The end of the archive when this state was put here in the place of another, which had these words. */
  intent: {
    readonly name: string;
    readonly number: number;
    readonly words: readonly string[];
  } | null;
}

const NO_POSITION = { salt: "", offset: 0, checksum: "" };

/** A create can look as if it were that of another server. */
async function untilKnown<Result>(work: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await work();
    } catch {
      // Again.
    }
  }
}

function isPrefix(prefix: readonly string[], words: readonly string[]): boolean {
  return prefix.length <= words.length && prefix.every((word, at) => words[at] === word);
}

/** Puts the newest state, or an earlier one, in the place of a database. */
export async function restoreOver(
  { restore, random }: World,
  storage: ObjectStorage,
  disk: Disk,
  isEarlier: boolean,
): Promise<void> {
  const { catalog, history, loss, words } = await restore(storage);
  if (loss !== null || history === null) return;
  const name = catalog.generations.get(history.last.generation)?.name ?? "";
  disk.words = isEarlier ? words.slice(0, random(words.length + 1)) : words;
  disk.names = isEarlier ? [] : [catalog.generations.get(catalog.newest)?.name ?? ""];
  disk.intent = isEarlier ? { name, number: history.last.number, words } : null;
}

function compare(
  { history, catalog, words }: Awaited<ReturnType<World["restore"]>>,
  { words: own, names, intent }: Disk,
  { ignoresIntent }: Mutation,
) {
  const { newest, generations } = catalog;
  const ended = generations.get(history?.last.generation ?? 0);
  const isSame = intent?.name === ended?.name && intent?.number === history?.last.number;
  const isIntended = intent !== null && (ignoresIntent ?? isSame);
  const isOwn = newest === 0 || names.includes(generations.get(newest)?.name ?? "") || isIntended;
  const isAhead = isPrefix(words, own);
  return {
    isDiverged: history !== null && !(isOwn && (isAhead || isIntended)),
    continues: history !== null && history.tail !== null && isAhead && !isIntended,
  };
}

/** @returns the generation; `null` if the database has gone another way than the archive; or a loss */
async function begin(world: World, storage: ObjectStorage, disk: Disk) {
  let sealed = 0;
  for (;;) {
    const found = await world.restore(storage);
    const { tail, loss, words } = found;
    const { newest } = found.catalog;
    const { isDiverged, continues } = compare(found, disk, world.mutation);
    if (loss !== null) return loss;
    if (isDiverged) return null;
    if (tail !== null && !tail.isSealed && !world.mutation.sealsNothing) {
      const sealer = { writer: world.newName("seal"), holder: "" };
      await untilKnown(() => seal(storage, tail.sealFrom, sealer, 0));
      continue;
    }
    // A base may have been stored before the seal, and after the bases were listed.
    if (sealed !== newest) {
      sealed = newest;
      continue;
    }
    const name = world.newName("name");
    const previousEnd = (tail?.sealFrom.number ?? 1) - 1;
    const server = { archive: "archive", name, identity: "", holder: "" };
    const parent = continues ? { generation: newest, number: previousEnd } : null;
    const log = { previousEnd, parent, commit: "async" } as const;
    const record: Generation = { number: newest + 1, ...log, ...server };
    disk.names = [name, ...disk.names];
    if (!(await untilKnown(() => createRecord(storage, record)))) continue;
    // The operator has seen all of these.
    world.takeBack((disk.intent?.words ?? []).filter((word) => !disk.words.includes(word)));
    disk.intent = null;
    return { record, archived: continues ? words.length : disk.words.length };
  }
}

/** @param archived words of the database that the archive has, or that its base will have */
function createWriter(
  world: World,
  process: Process,
  storage: ObjectStorage,
  disk: Disk,
  record: Generation,
  archived: number,
) {
  const { random, mutation } = world;
  const { number: generation, name: writer } = record;
  let hasBase = record.parent !== null;
  let isCopying = false;
  /** The first segment that the next base needs. */
  let first = 1;
  let sent = 0;
  const waiting = new Map<number, string>();
  const stored = new Set<number>();
  const log = createLog({ storage, generation: record, retry: untilKnown, onSuperseded() {} });
  const confirmed = () => (mutation.confirmsNothing ? 0 : log.stored());

  function acknowledge(): void {
    if (!hasBase || log.isEnded()) return;
    for (const [number, word] of waiting) {
      const isEarly = mutation.acknowledgesOutOfOrder && stored.has(number);
      if (!isEarly && number > log.stored()) continue;
      world.acknowledge(word);
      waiting.delete(number);
    }
  }

  return {
    log,
    isComplete: () => hasBase && log.stored() === sent,
    sending: () => sent - log.stored(),
    async beat(): Promise<void> {
      const state = { confirmed: confirmed(), sequence: world.now(), intervalMs: 1 };
      const beat = { generation, writer, ...state };
      await storage.put(heartbeatKey(generation), encodeJson(beat));
      world.mark(generation, beat.confirmed);
    },
    async send(): Promise<void> {
      const word = disk.words[archived + sent] ?? world.newName("word");
      if (archived + sent === disk.words.length) disk.words = [...disk.words, word];
      sent += 1;
      waiting.set(sent, word);
      const before = log.stored();
      const slot = {
        generation,
        number: sent,
        writer,
        confirmed: confirmed(),
        timeMs: world.now(),
      };
      const place = { salt: "", offset: 0, end: NO_POSITION, previous: null, progress: null };
      const head: SegmentHeader = { kind: "segment", ...slot, ...place, bytes: 1, sha256: word };
      if (!(await log.append(head, bytes(word)))) return;
      stored.add(head.number);
      world.mark(generation, before);
      acknowledge();
    },
    /** One at a time. */
    async writeBase(): Promise<void> {
      if (isCopying) return;
      isCopying = true;
      for (let pauses = hasBase ? 0 : random(30); pauses > 0; pauses -= 1) await process.pause();
      const id = { generation, number: world.now() };
      const last = { generation, number: sent };
      first = Math.max(first, sent - random(3));
      const words = disk.words.slice(0, archived + sent);
      await storage.put(chunkKey(id, 0), bytes(JSON.stringify(words)));
      // All that it needs comes first.
      while (log.stored() < last.number) await process.pause();
      const base = { ...id, first: { generation, number: first }, last, timeMs: world.now() };
      const contents = { chunks: [], storedBytes: 0, progress: null };
      await storage.put(baseKey(id), encodeJson({ ...base, ...contents }));
      hasBase ||= mutation.trustsFirstBase ?? (await log.isOpen());
      isCopying = false;
      acknowledge();
    },
    async expire(): Promise<void> {
      await deleteExpired(storage, world.now() - random(200)).catch(() => {});
      const { expires } = mutation;
      if (expires === undefined) return;
      const end = expires === prefixes.log ? logPrefix(generation) : generationKey(generation);
      const keys = (await storage.list(expires)).map(({ key }) => key);
      await storage.remove(keys.filter((key) => key < end));
    },
  };
}

export async function serve(world: World, process: Process, disk: Disk): Promise<void> {
  const { random, mutation } = world;
  const storage = mutation.storage?.(process.storage) ?? process.storage;
  const begun = await begin(world, storage, disk);
  if (begun === null) {
    await restoreOver(world, storage, disk, false);
    return serve(world, process, disk);
  }
  if (typeof begun === "string") return world.report(begun);
  const writer = createWriter(world, process, storage, disk, begun.record, begun.archived);
  const { log } = writer;
  await writer.beat();
  if (begun.record.parent === null) void writer.writeBase();
  const maxSending = 1 + random(MAX_SENDING);
  for (let left = random(20); left > 0 && !log.isEnded(); left -= 1) {
    const way = random(12);
    if (way === 0) await writer.beat();
    else if (way === 1) void writer.writeBase();
    else if (way === 2) await writer.expire();
    else if (writer.sending() < maxSending) void writer.send();
    await process.pause();
  }
  while (!writer.isComplete() && !log.isEnded()) await process.pause();
  if (!log.isEnded() && random(2) === 0) await untilKnown(() => log.close(world.now()));
}
