// The contract as a model: histories from seeds on a store. What breaks a promise is shrunk and printed.
import { afterAll, expect, spyOn, test } from "bun:test";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { openPostgres } from "../../../src/postgres/backend.ts";
import type { Task } from "../../../src/sqlite/file/thread.ts";
import { createSumsService, type SumsRequest } from "../../../src/sqlite/tables/sums.ts";
import { emptyTables, findCluster } from "../../postgres/cluster.ts";
import { runOn } from "../../postgres/instance.ts";
import { openDatabase, runSql } from "../../sqlite/open-database.ts";
import { makeDirectory } from "../../support/directory.ts";
import { isLong } from "../../support/long.ts";
import { storeOptions, untilConnected } from "../../support/open-store.ts";
import { type Fault, faults, plant, withFault } from "./faults.ts";
import { explainSeed, play } from "./play.ts";
import { promises, type Rule } from "./reference.ts";
import { makeSteps, type OpenPort } from "./steps.ts";
import { isLinux, storePort } from "./store-port.ts";

/** On SQLite; a tenth of it on PostgreSQL. */
const HISTORIES = Number(Bun.env["CONTRACT_HISTORIES"] ?? (isLong ? 1_000 : 100));
const isSearch = HISTORIES > 1_000;
const MAX_SEEDS = 250;

/** Where the search for a history that breaks a promise begins, if it would take long from the first one on. */
const SEEDS: Readonly<Record<string, number>> = {
  "a key keeps a deleted user": 22,
  "totals have orders in their last status": 22,
  "totals have deleted users": 46,
  "PUT keeps what it lacks": 20,
  "U28: an import does not know the keys that it frees": 55,
};

/** Where files are in memory, if there is such a place: no history tests the disk. */
const memory = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

// A thread for the first checkpoint of each start, the only one of a history, would take longer than all the rest.
const startThread = spyOn(globalThis, "Worker").mockImplementation(((url: string) => {
  const thread = {
    onmessage: (_: object) => {},
    postMessage(task: Task & SumsRequest) {
      if (url.includes("sums")) return sum(task);
      runSql(task.path, task.sql);
      queueMicrotask(() => thread.onmessage({ data: null }));
    },
  };
  const sum = createSumsService((data) => thread.onmessage({ data }));
  const nothing = () => {};
  const rest = { ref: nothing, unref: nothing, terminate: nothing, addEventListener: nothing };
  return Object.assign(thread, rest);
}) as never);
afterAll(() => startThread.mockRestore());

function openSqlite(fault: Fault = {}): OpenPort {
  const makeDatabase = () => {
    const directory = makeDirectory(memory);
    const path = directory.at("a.db");
    return {
      wal: `${path}-wal`,
      open: (options: object, isFirst: boolean) =>
        plant(fault, path, isFirst, () => openDatabase(path, options)),
      remove: () => directory[Symbol.dispose](),
    };
  };
  return withFault(fault, storePort(makeDatabase, true));
}

/** @returns what the calls came to */
async function playAll(count: number, open: OpenPort): Promise<Map<Rule, number>> {
  const all = new Map<Rule, number>();
  for (let seed = 1; seed <= count; seed += 1) {
    const { broken, counts } = await play(makeSteps(seed), open);
    expect(broken === null ? "" : await explainSeed(seed, broken.rule, open)).toBe("");
    for (const [rule, times] of counts) all.set(rule, (all.get(rule) ?? 0) + times);
  }
  return all;
}

test("histories of calls at the same time, restarts and times keep all promises on SQLite", async () => {
  const counts = await playAll(HISTORIES, openSqlite());
  if (isSearch) console.log(Object.fromEntries(counts));
  const impossible = isLinux ? ["bug"] : ["bug", "unavailable"];
  const names = Object.keys(promises).filter((name) => !impossible.includes(name));
  expect(names.filter((name) => !counts.has(name as Rule))).toEqual([]);
}, 36_000_000);

const cluster = await findCluster(false);

test.skipIf(cluster === null)(
  "histories keep all promises on PostgreSQL",
  async () => {
    if (cluster === null) return;
    // One for all: a new one takes as long as several histories.
    const url = await cluster.createDatabase();
    const databaseUrl = url.replace("max=5", "max=3");
    const makeDatabase = async () => {
      await runOn(url, emptyTables);
      const open = (options: object) =>
        untilConnected(() => openPostgres({ ...storeOptions, ...options, databaseUrl }));
      return { open, remove: () => {}, wal: null };
    };
    await playAll(Math.ceil(HISTORIES / 10), storePort(makeDatabase, false));
    await cluster.dropDatabase(url);
  },
  36_000_000,
);

// Without the planted fault, each of these seeds is among the histories above.
test.if(isLong || isSearch).each(Object.entries(faults))(
  "a promise is broken if %s",
  async (what, fault) => {
    const open = openSqlite(fault);
    for (let seed = isSearch ? 1 : (SEEDS[what] ?? 1); seed <= MAX_SEEDS; seed += 1) {
      const { broken } = await play(makeSteps(seed), open);
      if (isSearch && broken !== null) console.log(`${what}: ${broken.rule}, seed ${seed}`);
      if (broken !== null) return;
    }
    expect().fail("no promise is broken");
  },
  3_600_000,
);
