// Work that times out: the connections are replaced only if the network has lost them.
import { expect } from "bun:test";
import { type AddressInfo, createServer } from "node:net";
import { SQL } from "bun";
import { createPool } from "../../src/postgres/server/pool.ts";
import { startSwitch } from "../failover/switch.ts";
import { test } from "./postgres-harness.ts";

const CONNECTIONS = 2;
/** Short enough for a test, and long enough for the server to answer. */
const timing = {
  ...{ checkIntervalMs: 10, checkTimeoutMs: 2_000, replaceIntervalMs: 0, runningMs: 0 },
  writableIntervalMs: 0,
};

/** @param checkUrl where it connects after the first time */
function openPool(url: string, limits: Partial<typeof timing> = {}, checkUrl = url) {
  let opened = 0;
  const closed = Promise.withResolvers<void>();
  const open = (max = CONNECTIONS) => {
    opened += 1;
    const options = { max, connectionTimeout: 5, onclose: () => closed.resolve() };
    return new SQL(opened === 1 ? url : checkUrl, options);
  };
  const pool = createPool(open, { ...timing, ...limits });
  return {
    ...pool,
    opened: () => opened,
    closed: closed.promise,
    async untilOpened(count: number) {
      while (opened < count) await Bun.sleep(5);
    },
  };
}

function startAll(sql: SQL, statement: string): Promise<unknown>[] {
  return Array.from({ length: CONNECTIONS }, () => sql.unsafe(statement).execute());
}

test("the pool keeps its connections when the server runs their statements", async (world) => {
  const pool = openPool(`${world.url}&application_name=user-api`);
  const sql = pool.sql();
  await using held = await world.hold("lock table users in exclusive mode");
  const works = startAll(sql, "select from users for update");
  await world.untilWaiting(CONNECTIONS);
  for (const work of works) pool.checkUntil(work);
  // Those of the pool were opened first. When the fourth connection for a check is opened, three checks have ended.
  await pool.untilOpened(5);
  expect(pool.sql()).toBe(sql);
  await held.commit();
  // A check can come between the end of a statement and its result.
  await Promise.allSettled(works);
  await pool.close();
});

test("the pool replaces its connections when the network has lost them, and only once", async (world) => {
  await using network = await startSwitch(world.url);
  const pool = openPool(network.through(world.url), { replaceIntervalMs: 60_000 });
  const lost = pool.sql();
  await Promise.all(startAll(lost, "select 1"));
  network.losePackets();
  const works = startAll(lost, "select 2");
  const settled = Promise.allSettled(works);
  for (const work of works) pool.checkUntil(work);
  expect((await settled).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  const next = pool.sql();
  expect(next).not.toBe(lost);
  await Promise.all(startAll(next, "select 3"));
  network.losePackets();
  const late = startAll(next, "select 4");
  for (const work of late) pool.checkUntil(work);
  const ended = await Promise.race([Promise.allSettled(late), Bun.sleep(300)]);
  expect(ended).toBeUndefined();
  expect(pool.sql()).toBe(next);
  await next.close({ timeout: 0 });
  await Promise.allSettled(late);
});

test("the pool keeps its connections when the server does not answer on a new one, and asks no more when the work has ended", async (world) => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  const { port } = silent.address() as AddressInfo;
  const silentUrl = `postgres://nobody@127.0.0.1:${port}/none`;
  const pool = openPool(world.url, { checkTimeoutMs: 50 }, silentUrl);
  const sql = pool.sql();
  const { promise: work, resolve } = Promise.withResolvers();
  pool.checkUntil(work);
  await pool.untilOpened(4);
  expect(pool.sql()).toBe(sql);
  resolve(null);
  await work;
  const before = pool.opened();
  await Bun.sleep(200);
  expect(pool.opened()).toBe(before);
  await pool.close();
  silent.close();
});

test("the pool replaces its connections every five seconds at most when they reject writes", async (world) => {
  let nowMs = 0;
  const pool = createPool(
    () => new SQL(world.url, { max: 1 }),
    timing,
    () => nowMs,
  );
  const replacedMs: number[] = [];
  for (; nowMs < 16_000; nowMs += 500) {
    const sql = pool.sql();
    await pool.leaveReadOnly();
    if (pool.sql() !== sql) replacedMs.push(nowMs);
  }
  expect(replacedMs).toEqual([0, 5_000, 10_000, 15_000]);
  await pool.close();
});

test("the pool opens no connections when it is closed during a check", async (world) => {
  const pool = openPool(world.url);
  // The server runs none of its statements, so the connections seem to be lost.
  pool.checkUntil(new Promise(() => {}));
  void pool.close();
  await pool.closed;
  await Bun.sleep(0);
  expect(pool.opened()).toBe(2);
});
