// PostgreSQL is frozen, or waits for its standby, while two replicas are under load. Meanwhile every failed request must
// be a 503. changes-model.test.ts kills it.
import { expect, test } from "bun:test";
import { SQL } from "bun";
import type { TestResponse, TestServer } from "../http/server.ts";
import { findPrograms, type Instance, makeInstance, runOn } from "../postgres/instance.ts";
import { createUser } from "./contend.ts";
import { type Pair, possible, startPair } from "./pair.ts";

/** Timeouts of a request: for a batch, then for a connection, and then for the response. */
const MAX_WAIT_MS = 5_000 + 5_000 + 10_000;
/** Measured: 0.1 s. The bound is for busy machines. */
const RECOVERED_MS = 5_000;

// Signals need /proc to find the processes. If TEST_POSTGRES_URL is a remote server, none may be installed here.
const programs = possible && process.platform === "linux" ? findPrograms() : null;

const databaseName = "user_api";

/** Default number of connections of a replica. */
const POOL_SIZE = 10;
const countBackends = `
  select count(*)::integer as backends
  from pg_stat_activity
  where application_name like 'user-api%'
`;

interface Outage extends AsyncDisposable {
  readonly instance: Instance;
  readonly pair: Pair;
}

/** A PostgreSQL server that syncs to disk, as in production, and two replicas that use it. */
async function startOutage(): Promise<Outage> {
  await using resources = new AsyncDisposableStack();
  const instance = resources.use(await makeInstance(programs ?? "", { fsync: "on" }));
  await instance.start();
  await runOn(instance.url, `create database ${databaseName}`);
  const pair = resources.use(await startPair(instance.url.replace(/postgres$/, databaseName)));
  const kept = resources.move();
  return { instance, pair, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

/** @throws {Error} with this message if it takes too long */
async function until(
  isDone: () => Promise<boolean>,
  message: string,
  timeoutMs = RECOVERED_MS,
): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  while (!(await isDone())) {
    if (performance.now() > deadlineMs) throw new Error(message);
    await Bun.sleep(10);
  }
}

async function untilUnhealthy(replicas: readonly TestServer[]): Promise<void> {
  const statusOf = async (replica: TestServer) =>
    (await replica.call("GET", "/health", { token: null })).status;
  const asked = replicas.map((replica) =>
    until(async () => (await statusOf(replica)) === 503, "the replica stays healthy", MAX_WAIT_MS),
  );
  await Promise.all(asked);
}

/** Does this again and again until the requests have responses. @returns their statuses */
async function statusesDuring(
  work: () => Promise<void>,
  requests: readonly Promise<TestResponse>[],
): Promise<Set<number>> {
  let waiting = true;
  const responses = Promise.all(requests).finally(() => {
    waiting = false;
  });
  while (waiting) await work();
  return new Set((await responses).map(({ status }) => status));
}

const waitingCommits = "select from pg_stat_activity where wait_event = 'SyncRep'";

/** Commits until a commit waits for the standby: the setting takes effect some time after it was reloaded. */
async function untilCommitsWait(sql: SQL, { url }: Instance): Promise<void> {
  const commit = "select pg_logical_emit_message(true, '', '')";
  for (let isCommitted = true; ; await Bun.sleep(5)) {
    if (isCommitted) {
      isCommitted = false;
      void runOn(url, commit).finally(() => {
        isCommitted = true;
      });
    }
    if ((await sql.unsafe(waitingCommits)).length > 0) return;
  }
}

test.concurrent.if(programs !== null)(
  "requests return 503 within the timeouts while PostgreSQL is frozen, and succeed afterwards",
  async () => {
    await using outage = await startOutage();
    const { instance, pair } = outage;
    const { id } = await createUser(pair, "ann@example.com");
    const path = `/users/${id}`;
    instance.signal("SIGSTOP");
    const startedMs = performance.now();
    // More than there are connections: some wait for a connection, and some for a response.
    const asked = Array.from({ length: 60 }, (_, at) => {
      if (at % 3 === 0) return pair.call("GET", path);
      if (at % 3 === 1) return pair.call("PATCH", path, { body: { name: `${at}` } });
      return pair.call("POST", "/users", { body: { email: `${at}@example.com` } });
    });
    const responses = await Promise.all(asked);
    expect(performance.now() - startedMs).toBeLessThan(MAX_WAIT_MS + 1_000);
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([503]));
    expect(new Set(responses.map(({ headers }) => headers.get("retry-after")))).toEqual(
      new Set(["1"]),
    );
    // One of them is stopped meanwhile.
    const [going, ending] = pair.both;
    const stoppedMs = performance.now();
    const [code] = await Promise.all([ending.stop(), untilUnhealthy([going])]);
    expect(code).toBe(0);
    expect(performance.now() - stoppedMs).toBeLessThan(MAX_WAIT_MS);
    instance.signal("SIGCONT");
    for (const asking of [path, "/health"]) {
      const ask = () => going.call("GET", asking, { token: pair.token });
      await until(async () => (await ask()).status === 200, `${asking} stays unavailable`);
    }
  },
  60_000,
);

test.concurrent.if(programs !== null)(
  "reads succeed and the pools keep their size while the synchronous standby is lost, and writes succeed afterwards",
  async () => {
    await using outage = await startOutage();
    const { pair, instance } = outage;
    const { id } = await createUser(pair, "ann@example.com");
    const path = `/users/${id}`;
    const sql = new SQL(instance.url, { max: 1 });
    const setStandby = async (name: string) => {
      await sql.unsafe(`alter system set synchronous_standby_names = '${name}'`);
      await sql.unsafe("select pg_reload_conf()");
    };
    await setStandby("lost");
    await untilCommitsWait(sql, instance);
    let most = 0;
    const watch = async () => {
      expect((await pair.call("GET", path)).status).toBe(200);
      const [row] = await sql.unsafe<{ backends: number }[]>(countBackends);
      most = Math.max(most, Number(row?.backends));
      await Bun.sleep(100);
    };
    // The statements of the first round hang until the end. Their timeouts end before those of the second.
    for (let round = 0; round < 2; round += 1) {
      const writes = Array.from({ length: 60 }, (_, at) =>
        at % 2 === 0
          ? pair.call("POST", "/users", { body: { email: `${round}-${at}@example.com` } })
          : pair.call("PATCH", path, { body: { name: `${at}` } }),
      );
      expect(await statusesDuring(watch, writes)).toEqual(new Set([503]));
    }
    // Each replica may open one more connection to ask the server, while the previous one is closing.
    expect(most).toBeLessThanOrEqual(2 * (POOL_SIZE + 2));
    await setStandby("");
    for (const replica of pair.both) {
      const write = () =>
        replica.call("PATCH", path, { body: { name: "late" }, token: pair.token });
      await until(async () => (await write()).status === 200, "writes stay unavailable");
    }
    await sql.close();
  },
  60_000,
);
