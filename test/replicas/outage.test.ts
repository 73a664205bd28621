// PostgreSQL is frozen while two replicas are under load. Meanwhile every failed request must be a 503.
// histories.test.ts kills it, and test/postgres/pool.test.ts has statements that do not end.
import { expect, test } from "bun:test";
import { findPrograms, startInstance } from "../postgres/instance.ts";
import { createUser, possible, startPair } from "./pair.ts";

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
    await using instance = await startInstance(programs ?? "", { fsync: "on" });
    await using pair = await startPair(await instance.createDatabase());
    const path = `/users/${(await createUser(pair, "ann@example.com")).id}`;
    const [going, ending] = pair.both;
    const call = (method: string, path: string, body?: object) =>
      going.call(method, path, { ...(body && { body }) });
    instance.signal("SIGSTOP");
    const startedMs = performance.now();
    const stopping = ending.stop();
    // More than there are connections: some wait for a connection, and some for a response.
    const asked = Array.from({ length: 60 }, (_, at) => {
      if (at % 3 === 0) return call("GET", path);
      if (at % 3 === 1) return call("PATCH", path, { name: `${at}` });
      return call("POST", "/users", { email: `${at}@example.com` });
    });
    for (const { status, headers } of await Promise.all(asked))
      expect([status, headers.get("retry-after")]).toEqual([503, "2"]);
    expect(await stopping).toBe(0);
    expect((await call("GET", "/health")).status).toBe(503);
    expect(performance.now() - startedMs).toBeLessThan(MAX_WAIT_MS + PATIENCE_MS);
    instance.signal("SIGCONT");
    const resumedMs = performance.now();
    for (const asking of [path, "/health"])
      while ((await call("GET", asking)).status !== 200) await Bun.sleep(10);
    expect(performance.now() - resumedMs).toBeLessThan(PATIENCE_MS);
  },
  180_000,
);
