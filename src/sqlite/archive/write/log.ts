/**
 * The log of a generation: slots, each of which is created once. Servers compete for nothing but the next one. Whoever
 * continues an archive first seals the newest log, in its first empty slot, so that the server before can store nothing
 * more, however late. No clock is part of this.
 */
import { fail } from "../../../base/error.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import type { ArchiveContext, ServerContext } from "../context.ts";
import type { Generation, Head, Seal, SegmentHeader } from "../format.ts";
import * as format from "../format.ts";
import { generationKey, type ObjectId, slotKey } from "../keys.ts";
import { orNull } from "../read/catalog.ts";

type Slots = Pick<ObjectStorage, "get" | "create">;

/** A server may store a segment, and never learn it. */
function isSame(one: Head, other: Head): boolean {
  if (one.kind !== other.kind || one.writer !== other.writer) return false;
  return one.kind !== "segment" || other.kind !== "segment" || one.sha256 === other.sha256;
}

/** @param found in a slot, and not of this server */
function holderOf(id: ObjectId, found: Head | null): string {
  if (found === null) return `${slotKey(id)}, which cannot be read,`;
  return found.kind === "segment" ? "another server" : found.holder;
}

/** @returns what is there; `null` if it was created. @throws {AppError} unavailable if it is unknown whether it exists */
async function createOrRead({ create, get }: Slots, key: string, body: Uint8Array<ArrayBuffer>) {
  if (await create(key, body)) return null;
  const stored = await get(key, format.HEAD_BYTES);
  return stored ?? fail("unavailable", `${key} was refused, and does not exist`);
}

/** @returns what is in the slot: the head itself if it was empty; `null` if it is damaged */
async function createSlot(storage: Slots, head: Head, body = format.encodeJson(head)) {
  const found = await createOrRead(storage, slotKey(head), body);
  return found === null ? head : orNull(Promise.try(format.decodeHead, head, found));
}

/** @returns `null` when the slot has it, perhaps from an earlier call; otherwise who has another one there */
async function store(storage: Slots, head: Head, body?: Uint8Array<ArrayBuffer>) {
  const found = await createSlot(storage, head, body);
  return found !== null && isSame(found, head) ? null : holderOf(head, found);
}

/** What a seal says, wherever it is. Its kind is `closed` if it is that of the server of the log, which is complete. */
export type Sealer = Pick<Seal, "writer" | "holder" | "promoted" | "timeMs"> &
  Partial<Pick<Seal, "kind">>;

/** @returns that of a server; no two are equal */
export function sealerOf({ machine, files }: Pick<ServerContext, "machine" | "files">): Sealer {
  return { writer: machine.newId(), holder: files.holder, timeMs: machine.nowMs() };
}

/** @returns as `createSlot`. @param confirmed the last segment that is known to be stored */
function putSeal(storage: Slots, id: ObjectId, sealer: Sealer, confirmed = id.number - 1) {
  const { generation, number } = id;
  return createSlot(storage, { kind: "seal", generation, number, confirmed, ...sealer });
}

/**
 * Puts a seal into the first empty slot, unless the log has one.
 * @param from no segment from this one on is known to have been stored, and all before it are
 * @param mostFull how many segments of a server that has ended may follow
 * @returns the number of the last segment, for ever; 0 if there is none
 * @throws {AppError} unavailable if it has to be tried again
 */
export async function seal(
  storage: Slots,
  from: ObjectId,
  sealer: Sealer,
  mostFull = Number.POSITIVE_INFINITY,
): Promise<number> {
  for (let { number } = from; number <= from.number + mostFull; number += 1) {
    const found = await putSeal(storage, { ...from, number }, sealer);
    // A slot that is damaged is not empty, either.
    if (found !== null && found.kind !== "segment") return number - 1;
  }
  return fail("unavailable", "waiting for another server, which writes again");
}

/**
 * Puts a seal so far ahead that a server that writes all the time meets it: it may create more slots than `seal` can try.
 * It ends the log when no slot before it is empty, so seal the first empty one next. @returns the `from` of that
 */
export async function fence(storage: Slots, from: ObjectId, sealer: Sealer): Promise<ObjectId> {
  let { number } = from;
  for (let distance = 2 * format.MAX_SENDING; ; distance *= 2) {
    const id = { ...from, number: number + distance };
    const found = await putSeal(storage, id, sealer, number - 1);
    if (found?.kind !== "segment") return { ...from, number };
    // When its server sent it, all but the last of these were stored.
    number = id.number - format.MAX_SENDING + 1;
  }
}

/** Call it when the log before is sealed: then this record alone decides who is next. @returns whether it is this server */
export async function createRecord(storage: Slots, record: Generation): Promise<boolean> {
  const { number, name } = record;
  const found = await createOrRead(storage, generationKey(number), format.encodeJson(record));
  return found === null || format.decodeGeneration(number, found).name === name;
}

export type OwnLog = ReturnType<typeof createOwnLog>;

export function createOwnLog(
  { storage, problems, events }: Pick<ArchiveContext, "storage" | "problems" | "events">,
  { number: generation, name: writer, holder }: Pick<Generation, "number" | "name" | "holder">,
) {
  let stored = 0;
  let sent = 0;
  let isEnded = false;
  /** Segments that the archive has, while it lacks one before them. */
  const early = new Set<number>();

  function supersede(by: string): void {
    if (isEnded) return;
    isEnded = true;
    events.onSuperseded(by);
  }

  return {
    async append(head: SegmentHeader, contents: Uint8Array): Promise<boolean> {
      const body = new Uint8Array(Buffer.concat([format.encodeJson(head), contents]));
      sent = Math.max(sent, head.number);
      const attempt = () => store(storage, head, body);
      const other = await problems.retry("segments", () => isEnded, attempt);
      if (other !== null) supersede(other);
      if (isEnded) return false;
      early.add(head.number);
      while (early.delete(stored + 1)) stored += 1;
      return true;
    },
    /** Number of the last segment that the archive has, with all before it: these are in its history for ever. */
    stored: () => stored,
    /** @returns whether no other server has a slot: then what was stored before is in the history for ever */
    async isOpen({ get }: Pick<Slots, "get"> = storage): Promise<boolean> {
      const sentBefore = sent;
      // After what was sent before, an own segment proves the same as an empty slot: others may follow all the time.
      for (let number = stored + 1; !isEnded && number <= sentBefore + 1; number += 1) {
        const id = { generation, number };
        const body = await get(slotKey(id), format.HEAD_BYTES);
        if (body === null) return !isEnded;
        const found = await orNull(Promise.try(format.decodeHead, id, body));
        if (found !== null && found.writer !== writer) supersede(holderOf(id, found));
      }
      return !isEnded;
    },
    /** Says that this server writes nothing more. Call it when all of its segments are stored. */
    async close(timeMs: number): Promise<void> {
      const slot = { generation, number: stored + 1, writer, holder };
      const other = await store(storage, { kind: "closed", ...slot, confirmed: stored, timeMs });
      if (other !== null) supersede(other);
    },
    end(): void {
      isEnded = true;
    },
    isEnded: () => isEnded,
  };
}
