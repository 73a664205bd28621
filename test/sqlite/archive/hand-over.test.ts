// A server whose disk fails ends its own log, so that a standby takes over. The thread that writes is the test.

import { expect, test } from "bun:test";
import { fail } from "../../../src/base/error.ts";
import type { ArchiveCommit } from "../../../src/domain/archive.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { createWriteState } from "../../../src/sqlite/archive/context.ts";
import { encodeJson } from "../../../src/sqlite/archive/format.ts";
import type { OpenDatabase } from "../../../src/sqlite/archive/machine.ts";
import { readGeneration, readHead } from "../../../src/sqlite/archive/read/catalog.ts";
import { ANNOUNCEMENT_KEY } from "../../../src/sqlite/archive/write/announcement.ts";
import { makeArchive, makeClock } from "./archived.ts";

/** Interval of looks at the writes. */
const STEP_MS = 500;
const TAKEOVER_MS = 10_000;
const HUNG_MS = 30_000;

/** A server with one segment, and a standby that announces itself. */
async function start(commit: ArchiveCommit) {
  await using resources = new AsyncDisposableStack();
  const archive = resources.use(makeArchive());
  const faults = { isAway: false, isUnreadable: false };
  const create: ObjectStorage["create"] = async (...given) =>
    faults.isAway ? fail("unavailable", "away") : archive.storage.create(...given);
  const change = (database: OpenDatabase): OpenDatabase => ({
    ...database,
    readWal(position) {
      const reader = database.readWal(position);
      const fails = () => {
        throw Object.assign(new Error("read"), { code: "EIO" });
      };
      return { ...reader, read: () => (faults.isUnreadable ? fails() : reader.read()) };
    },
  });
  const clock = makeClock();
  const storage = { ...archive.storage, create };
  const announce = (timeMs: number, holder = "b.db") => {
    const announcement = { holder, timeMs, lacks: null, canWrite: true };
    return storage.put(ANNOUNCEMENT_KEY, encodeJson(announcement));
  };
  await announce(1);
  const writes = createWriteState();
  const inThread = { change, clock, writes: createWriteState(writes.memory) };
  const server = await archive.start({ commit, storage, standby: true, ...inThread });
  resources.use(server);
  await server.write(1);
  await announce(2);
  await clock.passSlowly(5_000);
  const kept = resources.move();
  return {
    ...server,
    faults,
    writes,
    announce,
    holder: async () => (await readGeneration(storage, 1)).holder,
    pass: clock.passSlowly,
    reasons: () => server.lines.filter((line) => line.startsWith("disk fails")),
    /** @returns whether the archive was given up, and whether a write can be acknowledged */
    state: () => [server.isSuperseded(), writes.begin() && writes.end()],
    /** @returns what is in the first slot without a segment */
    async end(number = 1): ReturnType<typeof readHead> {
      const head = await readHead(storage, { generation: 1, number });
      return head?.kind === "segment" ? this.end(number + 1) : head;
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

test("a server in async mode hands over when every write has failed for TAKEOVER_SECONDS", async () => {
  await using server = await start("async");
  server.writes.setFailing(true);
  await server.pass(TAKEOVER_MS);
  server.writes.setFailing(false);
  await server.pass(STEP_MS);
  server.writes.setFailing(true);
  await server.pass(TAKEOVER_MS);
  expect(server.state()).toEqual([false, true]);
  await server.pass(STEP_MS);
  expect(server.state()).toEqual([true, false]);
  expect(await server.end()).toMatchObject({ kind: "closed", promoted: true });
});

test("a server hands over when one write has not returned for 30 s, and does not acknowledge it", async () => {
  await using server = await start("async");
  // It is idle, then slow.
  await server.pass(HUNG_MS + STEP_MS);
  expect([server.isSuperseded(), server.writes.begin()]).toEqual([false, true]);
  await server.pass(HUNG_MS);
  expect([server.isSuperseded(), server.writes.end()]).toEqual([false, true]);
  // The standby has not announced itself for a minute.
  server.writes.begin();
  await server.pass(HUNG_MS + 2 * STEP_MS);
  expect(server.isSuperseded()).toBeFalse();
  // Its own, from before it was the primary, arrives late.
  await server.announce(3, await server.holder());
  await server.pass(5_000 + STEP_MS);
  expect(server.isSuperseded()).toBeFalse();
  await server.announce(4);
  await server.pass(5_000 + STEP_MS);
  expect([server.isSuperseded(), server.writes.end()]).toEqual([true, false]);
});

test("a server hands over when it cannot read what was written, and goes on while nothing is", async () => {
  await using server = await start("sync");
  server.faults.isUnreadable = true;
  await server.untilLine("database not read");
  await server.pass(2 * TAKEOVER_MS);
  expect(server.state()).toEqual([false, true]);
  server.insert();
  server.archiver.committed(2);
  await server.pass(TAKEOVER_MS + 2 * STEP_MS);
  expect(server.state()).toEqual([true, false]);
});

test("a server in async mode hands over only when the archive has what it has acknowledged", async () => {
  await using server = await start("async");
  server.faults.isAway = true;
  server.insert();
  server.writes.setFailing(true);
  await server.pass(2 * TAKEOVER_MS);
  expect(server.state()).toEqual([false, true]);
  expect(server.reasons()).toEqual([expect.stringContaining("`user-api archive promote`")]);
  server.faults.isAway = false;
  await server.untilComplete();
  await server.pass(STEP_MS);
  expect(server.isSuperseded()).toBeTrue();
});
