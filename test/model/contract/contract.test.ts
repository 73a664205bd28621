// The contract as a model: histories from seeds on a store. What breaks a promise is shrunk and printed.
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { openPostgres } from "../../../src/postgres/backend.ts";
import { findCluster } from "../../postgres/cluster.ts";
import { runOn } from "../../postgres/instance.ts";
import { openDatabase } from "../../sqlite/open-database.ts";
import { makeDirectory } from "../../support/directory.ts";
import { storeOptions, untilConnected } from "../../support/open-store.ts";
import { type Fault, faults, plant, withFault } from "./faults.ts";
import { play } from "./play.ts";
import { promises, type Rule } from "./reference.ts";
import { explainSeed } from "./shrink.ts";
import { makeSteps, type OpenPort } from "./steps.ts";
import { storePort } from "./store-port.ts";

/** On SQLite; a tenth of it on PostgreSQL. */
const HISTORIES = Number(Bun.env.CONTRACT_HISTORIES ?? 1_000);
const isLong = HISTORIES > 1_000;
const MAX_SEEDS = 300;

/** The first seeds that are known to break a promise with each planted fault, if it is not the first one. */
const SEEDS: Readonly<Record<string, number>> = {
  "a key expires an hour early": 4,
  "a key never expires": 3,
  "a key keeps a deleted user": 16,
  "a reference is given twice": 3,
  "the id of a deleted user is given again": 3,
  "totals have orders in their last status": 22,
  "totals lack orders in their new status": 15,
  "totals have deleted users": 46,
  "updated_at goes back": 3,
  "changes are deleted too early": 5,
  "a client that has missed changes is not told": 63,
  "a restart loses an update": 5,
  "a page after an id, newest first, has it again": 8,
  "a full page has a cursor although nothing follows": 15,
  "the order of a list is ignored": 8,
  "the status is ignored with a user": 4,
  "an email is found as it was typed": 12,
  "a user with orders is deleted": 2,
  "PUT keeps what it lacks": 20,
  "an update is made from an older record": 13,
  "U27: a refund of -0 is a change": 3,
  "an error of an edit is ignored": 2,
  "U28: an import does not know the keys that it frees": 55,
  "U28: an import writes what comes twice each time": 3,
  "an import without update updates": 2,
  "an import with update does not": 7,
};

/** Where files are in memory, if there is such a place: no history tests the disk. */
const memory = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

function openSqlite(fault: Fault = {}): OpenPort {
  const makeDatabase = () => {
    const directory = makeDirectory(memory);
    const path = directory.at("a.db");
    return {
      open: (options: object, isFirst: boolean) =>
        plant(fault, path, isFirst, () => openDatabase(path, options)),
      remove: () => directory[Symbol.dispose](),
    };
  };
  return withFault(fault, storePort(makeDatabase, true));
}

const emptyTables = [
  ...["orders", "idempotency_keys", "users", "change_outbox", "changes"].map(
    (table) => `delete from ${table}`,
  ),
  `update change_feed
    set first = 1, last = 0, last_xid = 0, xid = txid_current(), next_xid = 0, open_xids = '{}', totals = '{0,0,0,0,0,0}'`,
  "select setval('users_id_seq', 1, false), setval('orders_id_seq', 1, false)",
];

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
  if (isLong) console.log(Object.fromEntries(counts));
  const names = Object.keys(promises).filter((name) => name !== "bug");
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
      await runOn(url, ...emptyTables);
      const open = (options: object) =>
        untilConnected(() => openPostgres({ ...storeOptions, ...options, databaseUrl }));
      return { open, remove: () => {} };
    };
    await playAll(Math.ceil(HISTORIES / 10), storePort(makeDatabase, false));
    await cluster.dropDatabase(url);
  },
  36_000_000,
);

// Without the planted fault, each of these seeds is among the histories above.
test.each(Object.entries(faults))(
  "a promise is broken if %s",
  async (what, fault) => {
    const open = openSqlite(fault);
    const isBroken = async (seed: number) => (await play(makeSteps(seed), open)).broken;
    let seed = isLong ? 1 : (SEEDS[what] ?? 1);
    const last = isLong ? MAX_SEEDS : seed;
    let broken = await isBroken(seed);
    while (broken === null && seed < last) {
      seed += 1;
      broken = await isBroken(seed);
    }
    if (isLong) console.log(`${what}: ${broken?.rule}, seed ${seed}`);
    expect(broken).not.toBe(null);
  },
  3_600_000,
);
