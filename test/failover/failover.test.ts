// A PostgreSQL server is killed under load, its synchronous standby is promoted, and a proxy sends the service to it.
// `make failover-test` runs it.
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { findPrograms, type Instance, makeInstance, runOn } from "../postgres/instance.ts";
import { createUser } from "../replicas/contend.ts";
import { requireExact, startLoad, untilWritten } from "../replicas/load.ts";
import { type Pair, runCommand, startPair, walk } from "../replicas/pair.ts";
import { startSwitch } from "./switch.ts";

const required = Bun.env["TEST_FAILOVER"] === "true";

/** Load before and after the failover. */
const LOAD_MS = 2_000;
/** A bound for busy machines. TEST_TIMES=true prints the actual time. */
const RECOVERED_MS = 10_000;
/** Failovers of one run. The promoted server gets a new standby, and is killed in turn. */
const FAILOVERS = 3;

/** Numbers of writes that the promoted standby lacks. */
const LOST = [1, 2, 3, 4, 5];

const reload = "select pg_reload_conf()";

/** @throws {Error} if a program is missing */
function requirePrograms(): string {
  const programs = findPrograms();
  const needed = ["initdb", "postgres", "pg_basebackup"];
  if (programs !== null && needed.every((name) => existsSync(join(programs, name)))) {
    return programs;
  }
  throw new Error(
    `Cannot test a failover: ${needed.join(", ")} are not installed. Debian's package is postgresql`,
  );
}

/** Starts a standby. From then on, a commit on the primary waits until it is on the disks of both. */
async function addStandby(programs: string, primary: Instance): Promise<Instance> {
  const standby = await makeInstance(programs, {}, primary);
  await standby.start();
  await runOn(primary.url, "alter system set synchronous_standby_names = 'standby'", reload);
  const state = "select sync_state from pg_stat_replication where application_name = 'standby'";
  while (!Bun.deepEquals(await runOn(primary.url, state), [{ sync_state: "sync" }]))
    await Bun.sleep(10);
  return standby;
}

/** The new primary has no standby yet: its commits must not wait for one. */
async function promote(standby: Instance): Promise<void> {
  const reset = "alter system reset synchronous_standby_names";
  await runOn(standby.url, reset, "select pg_promote()");
}

/** Starts a primary, the switch in front of it, and two replicas of the service that use it. */
async function startService(programs: string, resources: AsyncDisposableStack) {
  const primary = resources.use(await makeInstance(programs, {}));
  await primary.start();
  await runOn(primary.url, "create database user_api");
  const endpoint = resources.use(await startSwitch(primary.url));
  const database = endpoint.through(primary.url).replace(/postgres$/, "user_api");
  const pair = resources.use(await startPair(database));
  return { primary, endpoint, database, pair };
}

interface Position {
  readonly feed: string;
  readonly last: number;
}

/** Expects that the service rejects a client that has read this far, by the name of the feed alone, and with an id. */
async function expectReset(pair: Pair, { feed, last }: Position): Promise<void> {
  for (const query of [`feed=${feed}`, `after=${last}&feed=${feed}`]) {
    const { status, json } = await pair.call("GET", `/changes?${query}`);
    expect([status, json.meta.code], query).toEqual([410, "changes_reset"]);
  }
}

test.if(required)(
  "acknowledged writes are stored exactly once, and the change feed has another name, when the primary is killed and its standby promoted",
  async () => {
    const programs = requirePrograms();
    await using resources = new AsyncDisposableStack();
    const { endpoint, database, pair, ...started } = await startService(programs, resources);
    let { primary } = started;
    const pids = pair.both.map(({ pid }) => pid);
    const load = startLoad(pair);
    for (let at = 0; at < FAILOVERS; at += 1) {
      const standby = resources.use(await addStandby(programs, primary));
      await untilWritten(load, RECOVERED_MS);
      await Bun.sleep(LOAD_MS);
      const unavailable = load.statuses[503] ?? 0;
      const { meta } = (await pair.call("GET", "/changes?limit=1")).json;
      primary.signal("SIGKILL");
      await promote(standby);
      endpoint.pointAt(standby.url);
      const recoveredMs = await untilWritten(load, RECOVERED_MS);
      if (Bun.env["TEST_TIMES"] === "true") {
        process.stderr.write(`Writes succeed ${recoveredMs} ms after the switch\n`);
      }
      expect(load.statuses[503]).toBeGreaterThan(unavailable);
      expect(load.wrong).toEqual([]);
      // By now, there are more changes than before.
      await expectReset(pair, meta);
      primary = standby;
    }
    await Bun.sleep(LOAD_MS);
    await load.stop();
    expect(load.wrong).toEqual([]);
    expect(pair.both.map(({ pid }) => pid)).toEqual(pids);
    await requireExact(pair, load);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  120_000,
);

async function readFeed(pair: Pair): Promise<Position> {
  for (;;) {
    const { status, json } = await pair.call("GET", "/changes?limit=1");
    if (status === 200) return json.meta;
    await Bun.sleep(10);
  }
}

test.if(required)(
  "a client of the change feed gets 410 when the standby that was promoted lacks changes, also after as many others",
  async () => {
    const programs = requirePrograms();
    await using resources = new AsyncDisposableStack();
    const { primary, endpoint, database, pair } = await startService(programs, resources);
    const standby = resources.use(await addStandby(programs, primary));
    await createUser(pair, "kept@example.com");
    expect(await readFeed(pair)).toMatchObject({ last: 1 });
    await runOn(primary.url, "alter system reset synchronous_standby_names", reload);
    standby.stop("fast");
    for (const at of LOST) await createUser(pair, `lost-${at}@example.com`);
    const read = await readFeed(pair);
    expect(read.last).toBe(1 + LOST.length);
    primary.signal("SIGKILL");
    await standby.start();
    await promote(standby);
    endpoint.pointAt(standby.url);
    // Without a write, which would number changes.
    const { feed, last } = await readFeed(pair);
    expect([feed === read.feed, last]).toEqual([false, 1]);
    for (const at of [...LOST, ...LOST.map((id) => -id)])
      await createUser(pair, `new${at}@example.com`);
    await expectReset(pair, read);
    const changes = await walk(pair, "/changes");
    expect(changes.map(({ id }) => id)).toEqual(changes.map((_, at) => at + 1));
    expect(changes).toHaveLength(1 + 2 * LOST.length);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  120_000,
);
