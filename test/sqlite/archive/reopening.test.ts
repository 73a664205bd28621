// A server whose opening fails because of its archive: what it opens again, and what it says meanwhile.
import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/error.ts";
import type { ArchiveOptions } from "../../../src/domain/archive.ts";
import { UNUSABLE } from "../../../src/sqlite/archive/context.ts";
import { untilOpen } from "../../../src/sqlite/archive/thread/reopening.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { makeClock } from "./archived.ts";

const storageAway = new AppError("unavailable", "s3://bucket is away", { cause: "archive" });
const otherArchive = new AppError("operator", "another archive", { cause: UNUSABLE });
const diverged = new AppError("operator", "another history", { cause: "archive diverged" });

/** Opens with attempts that end like this, the last of which is repeated. @param settings of a standby by default */
function open(attempts: readonly (unknown | null)[], settings: Partial<ArchiveOptions> = {}) {
  const events: string[] = [];
  const waits: (string | null)[] = [];
  const clock = makeClock();
  const options = {
    standby: true,
    restore: "never",
    wasSuperseded: false,
    signal: new AbortController().signal,
    onLog: (_: string, event: string, fields = {}) =>
      events.push(`${event} ${Object.values(fields)}`),
    onWaiting: (what: string | null) => waits.push(what),
    onSuperseded: (error: Error) => events.push(`superseded ${error.message}`),
    ...settings,
  } as unknown as ArchiveOptions;
  const seen: ArchiveOptions[] = [];
  const attempt = async (given: ArchiveOptions) => {
    const error = attempts[Math.min(seen.push(given), attempts.length) - 1];
    if (error === null) return "open";
    given.onSuperseded(new Error("lost"));
    throw error;
  };
  const replace = (reason: string) => void events.push(`replaced: ${reason}`);
  return { opened: untilOpen(options, clock, attempt, replace), events, waits, seen, clock };
}

test("a server with --standby opens again when its storage is away after it was reached, and says so once a minute", async () => {
  const { opened, events, waits, seen, clock } = open([...Array(100).fill(storageAway), null]);
  expect(await opened).toBe("open");
  expect(clock.monotonicMs()).toBe(100_000);
  const line = "waiting the storage of the archive,s3://bucket is away";
  // Not that it was superseded in an opening that has failed.
  expect(events).toEqual([line, line]);
  expect([waits[0], waits.at(-1)]).toEqual(["the storage of the archive", null]);
  expect([seen[0], seen[1]].map((options) => options?.wasReached)).toEqual([false, true]);
});

test("a server with --standby does not start with wrong settings or another archive, and waits when that comes later", async () => {
  await expectRejection(open([otherArchive]).opened, "operator", "another archive");
  const later = open([otherArchive, null], { wasSuperseded: true });
  expect(await later.opened).toBe("open");
  expect(later.waits).toEqual([expect.stringContaining("user-api archive check"), null]);
  const bug = new TypeError("x is null");
  await expect(open([bug], { wasSuperseded: true }).opened).rejects.toBe(bug);
});

test("a server with --standby waits for a disk that fails, also when the database cannot be put out of the way", async () => {
  const eio = Object.assign(new Error("disk I/O error"), { code: "SQLITE_IOERR" });
  const { opened, events, waits } = open([eio, diverged, null], { wasSuperseded: true });
  expect(await opened).toBe("open");
  expect(waits).toEqual(["its disk", null]);
  expect(events).toEqual(["waiting its disk,disk I/O error", "replaced: another history"]);
});

test("a server without --standby starts once, and is refused with the command when its database has diverged", async () => {
  const settings = { standby: false };
  await expectRejection(open([storageAway], settings).opened, "unavailable");
  await expectRejection(open([diverged], settings).opened, "operator", /`user-api restore --from`/);
  const { opened, events } = open([diverged, null], { ...settings, restore: "if-missing" });
  expect(await opened).toBe("open");
  expect(events).toEqual(["replaced: another history"]);
});
