/**
 * Servers that share an archive, on a network that loses, delays and repeats requests. They are slow, they are killed,
 * and they start again: on their old disk, on an empty one, or on one to which an earlier state was restored. What they
 * archive are words instead of parts of a write-ahead log: a database is a list of them.
 */
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { type History, readCatalog, readEnd } from "../../../src/sqlite/archive/catalog.ts";
import {
  baseKey,
  chunkKey,
  encodeJson,
  type Generation,
  generationKey,
  heartbeatKey,
  logPrefix,
  prefixes,
  type SegmentHeader,
  slotKey,
} from "../../../src/sqlite/archive/format.ts";
import { createLog, createRecord, seal } from "../../../src/sqlite/archive/log.ts";
import { deleteExpired } from "../../../src/sqlite/archive/retention.ts";
import { bytes, text } from "../../object-storage/contract.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { makeRandom } from "../../support/random.ts";
import { createNetwork, type Process } from "../../support/simulated-network.ts";

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

export interface Outcome {
  /** What is lost, and losses that a restore has reported although nothing is. */
  readonly problems: readonly string[];
  readonly acknowledged: number;
  readonly generations: number;
}

/** A database, and the file next to it. */
interface Disk {
  words: readonly string[];
  /** Names of the generations that it has begun. */
  names: readonly string[];
  /** The end of the archive when this state was put here in the place of another, which had these words. */
  intent: {
    readonly name: string;
    readonly number: number;
    readonly words: readonly string[];
  } | null;
}

const MAX_STEPS = 600;
const NO_POSITION = { salt: "", offset: 0, checksum: "" };

/** Creates may look as if they were those of another server. */
async function untilKnown<Result>(work: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await work();
    } catch {
      // Again.
    }
  }
}

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

function isPrefix(prefix: readonly string[], words: readonly string[]): boolean {
  return prefix.length <= words.length && prefix.every((word, at) => words[at] === word);
}

export async function simulate(seed: number, mutation: Mutation = {}): Promise<Outcome> {
  const random = makeRandom(Math.imul(seed, 2_654_435_761) | 1);
  const memory = createMemoryStorage(() => 0);
  let expirations = 0;
  const remove: ObjectStorage["remove"] = (keys) => {
    expirations += 1;
    return memory.remove(keys);
  };
  const shared = { ...memory, remove };
  const network = createNetwork(shared, random);
  const disks: Disk[] = [];
  const problems: string[] = [];
  /** By generation, up to which segment one that is stored says that all are. */
  const marks = new Map<number, number>();
  /** All that an operator has not taken back. */
  const acknowledged = new Set<string>();
  let acknowledgements = 0;
  let created = 0;
  let nowMs = 0;
  const newName = (kind: string) => `${kind}${++created}`;

  /** @returns the newest state. It is not restored while what it needs expires: that takes days */
  async function restore(storage: ObjectStorage) {
    for (;;) {
      const before = expirations;
      const catalog = await readCatalog(storage);
      const { history, tail } = await readEnd(storage, catalog);
      const loss = history?.loss ?? tail?.loss ?? null;
      const words = history === null || loss !== null ? [] : await readWords(storage, history);
      if (before === expirations) return { catalog, history, tail, loss, words };
    }
  }

  /** @returns the generation; `null` if the database has gone another way than the archive; or a loss */
  async function begin(storage: ObjectStorage, disk: Disk) {
    let sealed = 0;
    for (;;) {
      const { catalog, history, tail, loss, words } = await restore(storage);
      if (loss !== null) return loss;
      const { newest, generations } = catalog;
      const { intent } = disk;
      const ended = history === null ? null : generations.get(history.last.generation);
      const isIntended =
        intent !== null &&
        (mutation.ignoresIntent ??
          (intent.name === ended?.name && intent.number === history?.last.number));
      const isOwn = newest === null || disk.names.includes(newest.name) || isIntended;
      const isAhead = isPrefix(words, disk.words);
      if (history !== null && !(isOwn && (isAhead || isIntended))) return null;
      if (tail !== null && !tail.isSealed && !mutation.sealsNothing) {
        await untilKnown(() =>
          seal(storage, tail.sealFrom, { writer: newName("seal"), holder: "" }, 0),
        );
        continue;
      }
      // A base may have been stored before the seal, and after the bases were listed.
      if (newest !== null && sealed !== newest.number) {
        sealed = newest.number;
        continue;
      }
      const continues = history !== null && history.tail !== null && isAhead && !isIntended;
      const name = newName("name");
      const record: Generation = {
        number: (newest?.number ?? 0) + 1,
        archive: "archive",
        name,
        previousEnd: (tail?.sealFrom.number ?? 1) - 1,
        continues,
        identity: "",
        holder: "",
      };
      disk.names = [name, ...disk.names];
      if (!(await untilKnown(() => createRecord(storage, record)))) continue;
      // The operator has seen all of these.
      for (const word of intent?.words ?? [])
        if (!disk.words.includes(word)) acknowledged.delete(word);
      disk.intent = null;
      return { record, archived: continues ? words.length : disk.words.length };
    }
  }

  async function restoreOver(
    storage: ObjectStorage,
    disk: Disk,
    isEarlier: boolean,
  ): Promise<void> {
    const { catalog, history, loss, words } = await restore(storage);
    if (loss !== null || history === null) return;
    const name = catalog.generations.get(history.last.generation)?.name ?? "";
    disk.words = isEarlier ? words.slice(0, random(words.length + 1)) : words;
    disk.names = isEarlier ? [] : [catalog.newest?.name ?? ""];
    disk.intent = isEarlier ? { name, number: history.last.number, words } : null;
  }

  async function serve(process: Process, storage: ObjectStorage, disk: Disk): Promise<void> {
    const begun = await begin(storage, disk);
    if (begun === null) {
      await restoreOver(storage, disk, false);
      return serve(process, storage, disk);
    }
    if (typeof begun === "string") return void problems.push(begun);
    const { record } = begun;
    const { number: generation, name: writer } = record;
    let hasBase = record.continues;
    let archived = begun.archived;
    let sent = 0;
    let isCopying = false;
    /** The first segment that the next base needs. */
    let first = 1;
    const waiting = new Map<number, string>();
    const stored = new Set<number>();
    const confirmed = () => (mutation.confirmsNothing ? 0 : log.stored());
    const log = createLog({ storage, generation: record, retry: untilKnown, onSuperseded() {} });

    function acknowledge(): void {
      if (!hasBase || log.isEnded()) return;
      for (const [number, word] of waiting) {
        const isStored = mutation.acknowledgesOutOfOrder
          ? stored.has(number)
          : number <= log.stored();
        if (!isStored) continue;
        acknowledged.add(word);
        acknowledgements += 1;
        waiting.delete(number);
      }
    }

    async function beat(): Promise<void> {
      const body = { generation, writer, confirmed: confirmed(), sequence: created };
      await storage.put(heartbeatKey(generation), encodeJson(body));
    }

    async function send(): Promise<void> {
      const word = disk.words[archived] ?? newName("word");
      if (archived === disk.words.length) disk.words = [...disk.words, word];
      archived += 1;
      sent += 1;
      waiting.set(sent, word);
      const mark = log.stored();
      const slot = { generation, number: sent, writer, confirmed: confirmed(), timeMs: nowMs };
      const place = { salt: "", offset: 0, end: NO_POSITION, previous: null, progress: null };
      const head: SegmentHeader = { kind: "segment", ...slot, ...place, bytes: 1, sha256: word };
      if (!(await log.append(head, bytes(word)))) return;
      stored.add(head.number);
      marks.set(generation, Math.max(mark, marks.get(generation) ?? 0));
      acknowledge();
    }

    async function expire(): Promise<void> {
      await deleteExpired(storage, nowMs - random(200)).catch(() => {});
      if (mutation.expires === undefined) return;
      const keys = (await storage.list(mutation.expires)).map(({ key }) => key);
      const end =
        mutation.expires === prefixes.log ? logPrefix(generation) : generationKey(generation);
      await storage.remove(keys.filter((key) => key < end));
    }

    /** One at a time. */
    async function writeBase(): Promise<void> {
      if (isCopying) return;
      isCopying = true;
      for (let pauses = hasBase ? 0 : random(30); pauses > 0; pauses -= 1) await process.pause();
      const id = { generation, number: nowMs };
      const last = { generation, number: sent };
      first = Math.max(first, sent - random(3));
      const words = disk.words.slice(0, archived);
      await storage.put(chunkKey(id, 0), bytes(JSON.stringify(words)));
      // All that it needs comes first.
      while (log.stored() < last.number) await process.pause();
      const segments = { first: { generation, number: first }, last };
      const base = {
        ...id,
        ...segments,
        timeMs: nowMs,
        chunks: [],
        storedBytes: 0,
        progress: null,
      };
      await storage.put(baseKey(id), encodeJson(base));
      hasBase ||= mutation.trustsFirstBase ?? (await log.isOpen());
      isCopying = false;
      acknowledge();
    }

    await beat();
    if (!hasBase) void writeBase();
    const maxSending = 1 + random(4);
    for (let left = random(20); left > 0 && !log.isEnded(); left -= 1) {
      const way = random(12);
      if (way === 0) await beat();
      else if (way === 1) void writeBase();
      else if (way === 2) await expire();
      else if (sent - log.stored() < maxSending) void send();
      await process.pause();
    }
    while ((!hasBase || log.stored() < sent) && !log.isEnded()) await process.pause();
    if (!log.isEnded() && random(2) === 0) await untilKnown(() => log.close(nowMs));
  }

  /** Restores the archive while servers write to it. */
  async function read(storage: ObjectStorage): Promise<void> {
    const before = [...acknowledged];
    const { loss, words } = await restore(storage);
    const lost = before.filter((word) => acknowledged.has(word) && !words.includes(word));
    if (loss !== null || lost.length > 0) problems.push(`meanwhile: ${loss ?? lost.join()}`);
  }

  const processes: Process[] = [];
  function start(): void {
    const process = network.join(random(4) === 0);
    const { storage } = process;
    if (random(5) === 0) return void read(storage);
    processes.push(process);
    const old = disks[random(2 * disks.length + 1)];
    const disk: Disk = { words: [], names: [], intent: null, ...old };
    disks.push(disk);
    const restored = old === undefined && restoreOver(storage, disk, random(3) === 0);
    const changed = mutation.storage?.(storage) ?? storage;
    void Promise.resolve(restored).then(() => serve(process, changed, disk));
  }

  const starts = 3 + random(5);
  for (let step = 0; step < MAX_STEPS; step += 1) {
    nowMs += 1;
    if (processes.length < starts && random(40) === 0) start();
    if (random(150) === 0) processes[random(processes.length)]?.kill();
    if ((await network.step()) || processes.length < starts) continue;
    break;
  }
  const { history, loss, words } = await restore(shared);
  const lost = [...acknowledged].filter((word) => !words.includes(word));
  if (loss !== null || lost.length > 0) problems.push(loss ?? `lost: ${lost.join()}`);
  const removed = history?.segments[random(history.segments.length)];
  const isOpen =
    history?.tail?.isSealed === false && removed?.generation === history.lastGeneration;
  // What was stored after the last mark may be taken for the end.
  const isMarked =
    removed !== undefined && (!isOpen || removed.number <= (marks.get(removed.generation) ?? 0));
  if (isMarked) await shared.remove([slotKey(removed)]);
  const damaged = isMarked ? await restore(shared) : null;
  // An older base may not need it.
  if (damaged?.loss === null && damaged.words.length < words.length)
    problems.push(`taken for the end: ${slotKey(removed!)}`);
  const generations = (await shared.list("generations/")).length;
  return { problems, acknowledged: acknowledgements, generations };
}
