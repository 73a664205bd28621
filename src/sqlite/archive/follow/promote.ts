/** Ends the newest log for a planned switch: a standby takes over when it finds that. */
import { fail } from "../../../base/error.ts";
import type { Promotion } from "../../../domain/archive.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import { areVoid, readEnd, readHead, readLastHeader } from "../read/catalog.ts";
import { MAX_SILENCE_MS, readAnnouncement } from "../write/announcement.ts";
import { fence, type Sealer, seal } from "../write/log.ts";

const NO_STANDBY = `no standby has announced itself within ${MAX_SILENCE_MS / 1000} s by the clock of this machine: start one, or add --force`;

async function requireStandby(storage: ObjectStorage, primary: string, nowMs: number) {
  const found = await readAnnouncement(storage);
  // The primary announced itself before it took over.
  const canTakeOver = found !== null && found.holder !== primary && found.canWrite;
  if (canTakeOver && Math.abs(nowMs - found.timeMs) <= MAX_SILENCE_MS) return found.holder;
  return fail("operator", NO_STANDBY);
}

async function requireSoundEnd(storage: ObjectStorage) {
  const { newest, history, tail } = await readEnd(storage);
  if (newest === null) return fail("operator", "the archive is empty");
  const isAnew =
    history?.tail == null && (await areVoid(storage, history?.lastGeneration ?? 0, newest.number));
  if (tail === null || (history?.tail == null && !isAnew))
    return fail("operator", `generation ${newest.number} has no complete base`);
  const damage = history === null ? null : (await readLastHeader(history)).damage;
  if (damage !== null) fail("operator", `the archive is damaged: ${damage}`);
  return { newest, tail };
}

/** @see ArchiveCommands. @param own how this call differs from others. @throws {AppError} unavailable: try again */
export async function promote(
  storage: ObjectStorage,
  isForced: boolean,
  nowMs: number,
  own: Pick<Sealer, "writer" | "holder">,
): Promise<Promotion> {
  const { newest, tail } = await requireSoundEnd(storage);
  const { number: generation, holder } = newest;
  const standby = isForced ? null : await requireStandby(storage, holder, nowMs);
  const sealer = { ...own, timeMs: nowMs, promoted: true };
  const { isSealed, sealFrom } = tail;
  const from = isSealed ? sealFrom : await fence(storage, sealFrom, sealer);
  const end = await seal(storage, from, sealer);
  const found = await readHead(storage, { generation, number: end + 1 });
  const hadEnded = found?.writer !== own.writer;
  // The end is that of a server, which has stopped, or was to continue the archive.
  if (hadEnded) await seal(storage, { generation, number: end + 2 }, sealer);
  return { generation, holder, hadEnded, standby };
}
