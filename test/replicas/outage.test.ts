// PostgreSQL is frozen while two replicas are under load. Meanwhile every failed request must be a 503.
// changes-model.test.ts kills it, and test/postgres/pool.test.ts has statements that do not end.
import { expect, test } from "bun:test";
import { findPrograms, makeInstance, runOn } from "../postgres/instance.ts";
import { createUser } from "./contend.ts";
import { possible, startPair } from "./pair.ts";

/** Timeouts of a request: for a batch, then for a connection, and then for the response. */
const MAX_WAIT_MS = 5_000 + 5_000 + 10_000;
/** For busy machines: the recovery takes 0.1 s on others. */
const PATIENCE_MS = 30_000;

// Signals need /proc to find the processes. If TEST_POSTGRES_URL is a remote server, none may be installed here.
const programs = possible && process.platform === "linux" ? findPrograms() : null;

test.if(programs !== null)(
  "requests return 503 within the timeouts while PostgreSQL is frozen, and succeed afterwards",
  async () => {
    // It syncs to disk, as in production.
    await using instance = await makeInstance(programs ?? "", { fsync: "on" });
    await instance.start();
    await runOn(instance.url, "create database user_api");
    await using pair = await startPair(instance.url.replace(/postgres$/, "user_api"));
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
    expect(performance.now() - startedMs).toBeLessThan(MAX_WAIT_MS + PATIENCE_MS);
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([503]));
    expect(new Set(responses.map(({ headers }) => headers.get("retry-after")))).toEqual(
      new Set(["2"]),
    );
    // One of them is stopped meanwhile.
    const [going, ending] = pair.both;
    const stoppedMs = performance.now();
    const statusOf = async (asked: string) =>
      (await going.call("GET", asked, { token: pair.token })).status;
    const until = async (path: string, status: number) => {
      while ((await statusOf(path)) !== status) await Bun.sleep(10);
    };
    const [code] = await Promise.all([ending.stop(), until("/health", 503)]);
    expect(code).toBe(0);
    expect(performance.now() - stoppedMs).toBeLessThan(MAX_WAIT_MS + PATIENCE_MS);
    instance.signal("SIGCONT");
    const resumedMs = performance.now();
    for (const asking of [path, "/health"]) await until(asking, 200);
    expect(performance.now() - resumedMs).toBeLessThan(PATIENCE_MS);
  },
  180_000,
);
