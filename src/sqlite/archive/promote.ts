/** Ends the newest log for a planned switch: a standby takes over when it finds that. */
import { fail } from "../../base/error.ts";
import type { Promotion } from "../../domain/archive.ts";
import { type ObjectStorage, withRetries } from "../../domain/object-storage.ts";
import type { Backend } from "../../domain/store.ts";
import { describeSqliteError } from "../file/errors.ts";
import { MAX_SILENCE_MS, readAnnouncement } from "./announcement.ts";
import { readCatalog, readEnd, readLastHeader, requireNewest } from "./catalog.ts";
import { holderName } from "./identity.ts";
import { fence, readHead, type Sealer, seal } from "./log.ts";

const NO_STANDBY = `no standby has announced itself within ${MAX_SILENCE_MS / 1000} s by the clock of this machine: start one, or add --force`;

async function requireStandby(storage: ObjectStorage, primary: string, nowMs: number) {
  const announcement = await readAnnouncement(storage);
  // The primary announced itself before it took over.
  if (announcement === null || announcement.holder === primary) return fail("operator", NO_STANDBY);
  const { holder, timeMs } = announcement;
  return Math.abs(nowMs - timeMs) <= MAX_SILENCE_MS ? holder : fail("operator", NO_STANDBY);
}

/** @returns the newest generation, and how its log ends */
async function requireSoundEnd(storage: ObjectStorage) {
  const catalog = await readCatalog(storage);
  const newest = requireNewest(catalog) ?? fail("operator", "the archive is empty");
  const { history } = await readEnd(storage, catalog);
  if (history?.tail == null)
    return fail("operator", `generation ${newest.number} has no complete base`);
  const { damage } = await readLastHeader(storage, history);
  if (damage !== null) fail("operator", `the archive is damaged: ${damage}`);
  return { newest, tail: history.tail };
}

/**
 * @see Backend.promoteArchive
 * @throws {AppError} unavailable if it has to be tried again
 */
export async function promote(
  storage: ObjectStorage,
  isForced: boolean,
  nowMs: number,
): Promise<Promotion> {
  const { newest, tail } = await requireSoundEnd(storage);
  const { number: generation, holder } = newest;
  const standby = isForced ? null : await requireStandby(storage, holder, nowMs);
  const writer = crypto.randomUUID();
  const sealer: Sealer = { writer, holder: holderName("archive promote"), promoted: true };
  const { isSealed, sealFrom } = tail;
  const from = isSealed ? sealFrom : await fence(storage, sealFrom, sealer, nowMs);
  const end = await seal(storage, from, sealer, nowMs);
  const found = await readHead(storage, { generation, number: end + 1 });
  const hadEnded = found?.writer !== writer;
  // The end is that of a server, which has stopped, or was to continue the archive.
  if (hadEnded) await seal(storage, { generation, number: end + 2 }, sealer, nowMs);
  return { generation, holder, hadEnded, standby };
}

/** @see Backend.promoteArchive */
export const promoteSqliteArchive: Backend["promoteArchive"] = (storage, ...options) =>
  promote(withRetries(storage), ...options).catch((error) => {
    throw describeSqliteError(`Cannot promote ${storage.url}`, error);
  });
