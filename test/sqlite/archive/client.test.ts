// The messages of the server to the thread of its archive, which is a fake.
import { Database } from "bun:sqlite";
import { expect, spyOn, test } from "bun:test";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import type { ArchiveOptions, ArchiveSettings } from "../../../src/domain/archive.ts";
import type { Store } from "../../../src/domain/store.ts";
import { createWriteState } from "../../../src/sqlite/archive/context.ts";
import { openArchive } from "../../../src/sqlite/archive/thread/client.ts";
import type {
  ArchiveRequest,
  ArchiveResponse,
} from "../../../src/sqlite/archive/thread/service.ts";
import { createArchiveService } from "../../../src/sqlite/archive/thread/service.ts";
import { diskFiles } from "../../../src/sqlite/disk/files.ts";
import { systemMachine } from "../../../src/sqlite/disk/system-machine.ts";
import type { FileDescriptors } from "../../../src/sqlite/file/file-watch.ts";
import { newUser } from "../../contract/open.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { makeDirectory } from "../../support/directory.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { withStore } from "../../support/open-store.ts";
import { makePath } from "../open-database.ts";
import { defaults, makeClock } from "./archived.ts";

type Respond = (response: ArchiveResponse) => void;

/** @returns a thread, and the types of its requests. It says that each is done, unless `handle` handles it */
function makeWorker(handle: (request: ArchiveRequest, respond: Respond) => boolean = () => false) {
  const requests: string[] = [];
  const respond: Respond = (data) => fake.onmessage({ data });
  const fake = Object.assign(new EventTarget(), {
    onmessage(_event: { readonly data: ArchiveResponse }) {},
    postMessage(request: ArchiveRequest) {
      requests.push(request.type);
      if (!handle(request, respond)) setTimeout(() => respond({ type: "done", result: false }), 5);
    },
    ref() {},
    unref() {},
    terminate() {},
  });
  return { requests, respond, worker: fake as unknown as Worker };
}

const place = { url: "file:///archive", environment: {} };
const settings: ArchiveSettings = { ...defaults, ...place, intervalMs: 1000 };

function optionsOf(worker: Worker): ArchiveOptions {
  return {
    ...settings,
    createWorker: () => worker,
    onLog() {},
    onStopped() {},
    onSuperseded() {},
    signal: new AbortController().signal,
  };
}

test("requests at the same time all have a response, and a server that has begun waits for nothing", async () => {
  const waits: (string | null)[] = [];
  const { worker, requests } = makeWorker(({ type }, respond) => {
    if (type === "open") respond({ type: "waiting", what: "its disk" });
    return false;
  });
  const options = { ...optionsOf(worker), onWaiting: (what: string | null) => waits.push(what) };
  await using archive = await openArchive("a.db", options, systemMachine);
  await Promise.all([archive.checkpoint(), archive.checkpoint()]);
  expect(requests).toEqual(["open", "checkpoint", "checkpoint"]);
  expect(waits).toEqual(["its disk", null]);
});

for (const [commit, standby, seconds] of [
  ["sync", true, 12],
  ["sync", false, null],
  ["async", true, null],
] as const)
  test(`an archive in ${commit} mode, standby ${standby}, is held as long as its thread has said, and then its data has ${seconds} s`, async () => {
    const { worker, respond } = makeWorker();
    const clock = makeClock();
    const options = { ...optionsOf(worker), commit, standby };
    await using archive = await openArchive("a.db", options, clock);
    const report = (heldForMs: number) => {
      const state = { secondsBehind: 1, bytesBehind: 2, lastBaseS: 3, heldForMs };
      respond({ type: "state", state });
    };
    expect(archive.state().isHeld).toBeFalse();
    report(1_000);
    expect(archive.state()).toMatchObject({ bytesBehind: 2, isHeld: true, isReachable: true });
    expect(archive.secondsUnheld()).toBeNull();
    // The thread is silent.
    clock.pass(3_000);
    expect(archive.state()).toMatchObject({ isHeld: false, isReachable: false });
    expect(archive.secondsUnheld()).toBe(seconds);
    report(1_000);
    respond({ type: "superseded", reason: "another server" });
    clock.pass(3_000);
    expect(archive.state()).toMatchObject({ isHeld: false, isReachable: true });
  });

test("a server that stops writes nothing after the archive was asked to be complete", async () => {
  using directory = makeDirectory();
  const timers = new Map<unknown, () => void>();
  const runTimers = () => {
    for (const work of timers.values()) work();
  };
  const spies = [
    spyOn(globalThis, "setInterval").mockImplementation(((work: () => void) => {
      const timer = { unref() {} };
      timers.set(timer, work);
      return timer;
    }) as never),
    spyOn(globalThis, "clearInterval").mockImplementation((timer) => void timers.delete(timer)),
  ];
  const { worker, requests } = makeWorker((request, respond) => {
    if (request.type === "close") runTimers();
    if (request.type !== "committed") return false;
    setTimeout(() => respond({ type: "confirmed", ticket: request.ticket }), 1);
    return true;
  });
  const archive = { ...optionsOf(worker), commit: "sync" } as const;
  const serve = async () => {
    requests.length = 0;
    using other = new Database(directory.at("a.db"));
    // As if other processes wrote all the time: enough for a checkpoint at each look.
    const fill = () => other.run("insert into filler values (zeroblob(20000000))");
    other.run("pragma wal_autocheckpoint = 0; create table filler (content blob)");
    fill();
    runTimers();
    expect(requests).toContain("checkpoint");
    fill();
  };
  const opened = withStore(directory.at("a.db"), serve, { mode: "serve", archive });
  await opened.finally(() => spies.map((spy) => spy.mockRestore()));
  expect(requests.slice(requests.indexOf("close"))).toEqual(["close"]);
});

test("the changes of a server are shown when the archive has them, and immediately when it has acknowledged them", async () => {
  const { path } = makePath();
  let isHeldBack = false;
  let held = 0;
  const { worker, respond } = makeWorker((request, answer) => {
    if (request.type !== "committed") return false;
    held = request.ticket;
    if (!isHeldBack) setTimeout(() => answer({ type: "confirmed", ticket: request.ticket }), 1);
    return true;
  });
  const archive = { ...optionsOf(worker), commit: "sync" as const };
  await withStore(
    path,
    async (store) => {
      const shownOf = async ({ changes }: Store) => {
        const all = { limit: 10, offset: 0 };
        const { last, records } = await changes.list(all);
        const newest = await changes.listOf({ ...all, table: "users", id: 3, sort: "-id" });
        return [last, records.match(/\{"id"/g)?.length, newest.total, newest.records !== ""];
      };
      await newUser(store);
      isHeldBack = true;
      const before = held;
      const writing = newUser(store);
      while (held === before) await Bun.sleep(1);
      await withStore(path, async (other) => {
        await newUser(other);
        expect(await shownOf(other)).toEqual([3, 3, 1, true]);
      });
      expect(await shownOf(store)).toEqual([1, 1, 0, false]);
      const listAfter = async (after: number) => store.changes.list({ limit: 1, offset: 0, after });
      await expectRejection(listAfter(3), "unavailable", "the server is behind another one");
      isHeldBack = false;
      respond({ type: "confirmed", ticket: held });
      await writing;
      expect(await shownOf(store)).toEqual([3, 3, 1, true]);
      await expectRejection(listAfter(4), "changes_reset", /^there is no change 4/);
    },
    { mode: "serve", archive },
  );
});

test("a start names the archive when that does not take the first write", async () => {
  using directory = makeDirectory();
  const { worker } = makeWorker(({ type }, respond) => {
    if (type === "committed")
      setTimeout(() => respond({ type: "superseded", reason: "another server" }), 1);
    return type === "committed";
  });
  const archive = { ...optionsOf(worker), commit: "sync" as const };
  const opening = withStore(directory.at("a.db"), async () => {}, { mode: "serve", archive });
  await expectRejection(opening, "unavailable", /^ARCHIVE_URL: the archive does not respond, /);
});

test("of two new machines that start in the same moment, the slower one deletes its new database, and follows", async () => {
  const { directory, path } = makePath();
  const events: string[] = [];
  const databases: boolean[] = [];
  const { worker, requests } = makeWorker(({ type }, respond) => {
    if (type === "open") databases.push(existsSync(path));
    const isSlower = type === "start" && databases.length === 1;
    if (!isSlower) return false;
    writeFileSync(`${path}-archive`, "{}");
    const error = { code: "operator", message: "another", cause: "archive diverged" } as const;
    respond({ type: "failed", ...error });
    return true;
  });
  const onLog = (_: string, event: string) => void events.push(event);
  const archive = { ...optionsOf(worker), standby: true, onLog };
  await withStore(path, async () => {}, { mode: "serve", archive });
  expect(requests.filter((type) => type === "start")).toHaveLength(2);
  expect([databases, events]).toEqual([[false, false], ["empty database deleted"]]);
  expect(readdirSync(directory.path).filter((name) => /-archive|diverged/.test(name))).toEqual([]);
});

test("a store closes, and can be opened again, when the thread of its archive has ended", async () => {
  using directory = makeDirectory();
  const { worker } = makeWorker();
  const events: string[] = [];
  const archive = {
    ...optionsOf(worker),
    onLog: (_: string, event: string, { reason } = {} as Record<string, unknown>) =>
      void events.push(`${event}: ${reason}`),
    onStopped: (error: Error) => void events.push(error.message),
  };
  const end = async () => {
    const message = "1 | const x = y;\n          ^\nTypeError: y is null\n    at x (a.ts:1:1)\n";
    worker.onerror?.(new ErrorEvent("error", { message }));
    worker.dispatchEvent(new Event("close"));
  };
  await withStore(directory.at("a.db"), end, { mode: "serve", archive });
  expect(events).toEqual(["archive stopped: y is null", "the archive has stopped: y is null"]);
  await withStore(directory.at("a.db"), async () => {}, { mode: "serve" });
});

test("the thread of the archive reports what fails, and ends when it is closed", async () => {
  using directory = makeDirectory();
  const path = directory.at("missing.db");
  const responses: ArchiveResponse[] = [];
  const handle = createArchiveService({
    machine: systemMachine,
    // Without conditional writes.
    openStorage: () => ({ ...createMemoryStorage(), create: async () => true }),
    filesOf: (at) => diskFiles(at, () => {}),
    respond: (response) => void responses.push(response),
  });
  const files = { database: 0, wal: 0, shm: 0 } as unknown as FileDescriptors;
  await handle({ type: "open", path, settings: { ...settings, standby: true } });
  const cause = "archive unusable";
  expect(responses.splice(0)).toMatchObject([{ type: "failed", code: "operator", cause }]);
  await handle({ type: "open", path, settings });
  await handle({ type: "start", files, memory: createWriteState().memory });
  await handle({ type: "committed", ticket: 1 });
  await handle({ type: "checkpoint" });
  await handle({ type: "close" });
  expect(responses.map(({ type }) => type)).toEqual(["done", "failed", "done", "done"]);
  expect(responses[1]).toMatchObject({
    code: null,
    message: expect.stringMatching(/no such file/),
  });
});
