/** A server whose disk fails hands the archive over: no standby takes it while the heartbeats go on. */
import { fail } from "../../../base/error.ts";
import { createStillness } from "../read/still.ts";
import { seal, sealerOf } from "./log.ts";
import { type Archiving, endGeneration, isComplete } from "./segments.ts";

const LOOK_MS = 500;
/** A write that takes longer hangs. A disk that needs less for each is only slow. */
const HUNG_MS = 30_000;

const NO_STANDBY = "no standby whose disk can be written has announced itself";
const LACKS =
  "the archive lacks acknowledged writes, which `user-api archive promote` would give up";

/** Ends the log of this server, so that a standby takes over at once. @returns false if there was a write after that number */
async function handOver(archive: Archiving, number: number, reason: string): Promise<boolean> {
  const { writer, writes, storage, problems, commit, machine, log } = archive;
  if (writer === null || writer.heartbeat.standby()?.canWrite !== true)
    return fail("unavailable", `${reason}, and ${NO_STANDBY}`);
  const isAsync = commit === "async";
  if (isAsync && (problems.isFailing("reading") || !isComplete(writer)))
    fail("unavailable", `${reason}, and ${LACKS}`);
  if (!writes.close(number)) return false;
  log("warn", "handing over", { reason });
  endGeneration(writer);
  // The seal may be stored, and this server not know it.
  archive.events.onHeld(machine.monotonicMs());
  const { number: generation } = writer.beginning.generation;
  const from = { generation, number: writer.ownLog.stored() + 1 };
  const kind = isAsync ? "closed" : "seal";
  const sealer = { ...sealerOf(archive), kind, promoted: true } as const;
  const attempt = () => seal(storage, from, sealer);
  await problems.retry("handover", archive.isOver, attempt);
  return true;
}

/** Looks whether writes fail or hang. @param supersede gives the archive up. @returns ends it */
export function watchWrites(archive: Archiving, supersede: (reason: string) => void): Disposable {
  const { writes, problems, machine, takeoverMs } = archive;
  const observe = createStillness(machine);
  let failingSinceMs: number | null = null;

  function findReason(number: number): string | null {
    const isHung = observe(`${number}`) >= HUNG_MS && number % 2 === 1;
    const nowMs = machine.monotonicMs();
    const { lastTicket, writer } = archive;
    // What was written cannot be read for the archive, so it cannot be acknowledged.
    const isUnread = problems.isFailing("reading") && lastTicket > (writer?.readTicket ?? 0);
    // In sync mode, a probe that has written waits for the archive: until then, nothing is known of the disk.
    const isPending = archive.commit === "sync" && (writer?.pendingBytes ?? 0) > 0;
    const isFailing = writes.isFailing() && !isPending;
    failingSinceMs = isUnread || isFailing ? (failingSinceMs ?? nowMs) : null;
    if (failingSinceMs !== null && nowMs - failingSinceMs >= takeoverMs)
      return "every write has failed because of the disk";
    return isHung ? "a write has not returned for 30 s" : null;
  }

  return machine.every(LOOK_MS, () => {
    const number = writes.number();
    const reason = findReason(number);
    if (reason === null) return;
    const work = async () => {
      if (await handOver(archive, number, reason)) supersede(reason);
    };
    problems.run("handover", archive.isOver, work).catch(() => {});
  });
}
