// What a server does while it is a standby, and while its store is replaced.
import { expect, spyOn, test } from "bun:test";
import { createReplaceableStore } from "../../src/domain/replaceable-store.ts";
import { newToken } from "../../src/domain/token.ts";
import { createDrain } from "../../src/http/connections/drain.ts";
import { newUser } from "../contract/open.ts";
import { document, expectDocumented } from "../http/documented.ts";
import { openDatabase } from "../sqlite/open-database.ts";
import { makeDirectory } from "../support/directory.ts";
import { makeApp } from "./app.ts";

const directory = makeDirectory();

const apiToken = newToken();
const authorization = `Bearer ${apiToken}`;

function makeServer() {
  const stores = createReplaceableStore();
  const environment = { STANDBY: "true", ARCHIVE_URL: "s3://bucket", API_TOKEN: apiToken };
  const events: string[] = [];
  const note = (event: string) => events.push(event);
  const drain = createDrain();
  const app = makeApp({ warn: note, error: note }, environment, stores, drain);
  return {
    ...stores,
    events,
    drain,
    async call(method: string, path: string, headers: object = {}, body: string | null = null) {
      const url = `http://localhost/api/v1${path}`;
      const all = { host: "localhost", authorization, ...headers };
      const response = await app.handle(new Request(url, { method, headers: all, body }));
      const { status, headers: received } = response;
      const text = await response.text();
      expectDocumented(method, `/api/v1${path}`, { status, headers: received, text });
      return { status, text, age: received.get("age"), retryAfter: received.get("retry-after") };
    },
  };
}

/** A store with one user. @param behind seconds */
async function openStandby(name: string, behind: () => number) {
  const store = await openDatabase(directory.at(name));
  await newUser(store);
  const standby = { secondsBehind: behind, isPrimary: () => false, checkUsable: async () => {} };
  return Object.assign(store, standby);
}

test("a standby serves reads with their age, which need a token only up to 60 s, and rejects writes", async () => {
  let seconds = 2.1;
  await using store = await openStandby("age.db", () => seconds);
  const { call, replace, events, drain, noteWaiting } = makeServer();
  replace(store);
  const reads = ["/users", "/users/1", "/orders", "/changes", "/changes?after=0&wait=1"];
  for (const path of reads)
    expect(await call("GET", path)).toMatchObject({ status: 200, age: "3" });
  const known = await call("GET", "/users/1", { "if-none-match": '"1"' });
  expect(known).toMatchObject({ status: 304, age: "3" });
  for (const write of ["POST /users", "PATCH /users/1", "DELETE /users/1"]) {
    const [method = "", path = ""] = write.split(" ");
    const written = await call(method, path, {}, "not read");
    expect(written).toMatchObject({ status: 503, age: null, retryAfter: "2" });
    expect(written.text).toContain("the server is not the primary");
  }
  const health = { status: "standby", seconds_behind: 3 };
  expect(JSON.parse((await call("GET", "/health")).text).data).toEqual(health);
  expect((await call("GET", "/health?primary")).status).toBe(503);
  const { text } = await call("GET", "/metrics");
  for (const line of ["standby_seconds_behind 2.1", "standby 1", "primary 0", "writable 0"])
    expect(text).toContain(`\nuser_api_${line}\n`);
  expect(text).toContain('route="/api/v1/health",status="503",reason="not_primary"} 1\n');
  expect(text).toContain('"POST",route="/api/v1/users",status="503",reason="not_primary"} 1\n');
  expect(text).not.toMatch(/status="503"} [1-9]/);
  expect(events).toEqual([]);
  seconds = 60;
  expect((await call("GET", "/users")).age).toBe("60");
  noteWaiting("`a b`");
  expect(JSON.parse((await call("GET", "/health")).text).data.waiting).toBe("`a b`");
  seconds = 60.1;
  const paths = ["/users", "/users/1", "/orders", "/changes", "/health", "/health?primary"];
  for (const path of paths)
    expect(await call("GET", path, { authorization: "" })).toMatchObject({
      status: 503,
      retryAfter: "2",
    });
  expect((await call("GET", "/health")).text).toContain("60 s old: the server waits for `a b`");
  for (const path of ["/metrics", "/openapi.json", "/docs", "/health?live"])
    expect((await call("GET", path)).status).toBe(200);
  seconds = 60;
  void drain.start(0);
  expect((await call("GET", "/health")).status).toBe(503);
  expect((await call("GET", "/health?live")).status).toBe(200);
});

test("requests are rejected, and never fail, while there is no store", async () => {
  const { call, events, noteWaiting } = makeServer();
  const stored = { authorization: `Bearer ${newToken()}` };
  for (const [template, methods] of Object.entries(document.paths))
    for (const method of Object.keys(methods).map((name) => name.toUpperCase()))
      for (const headers of [{}, stored]) {
        const path = template.replace("/api/v1", "").replace(/\{\w+\}/, "1");
        const { status } = await call(method, path, headers, method === "POST" ? "{}" : null);
        const isFree = /docs|openapi/.test(path) || (path === "/metrics" && headers !== stored);
        const rejected = method === "GET" ? [503] : [400, 503];
        const expected = isFree ? [200] : rejected;
        expect(expected, `${method} ${path}`).toContain(status);
      }
  expect(events).not.toContain("internal error");
  noteWaiting("the storage");
  expect((await call("GET", "/health")).text).toContain("the server waits for the storage");
  expect((await call("GET", "/metrics")).text).toContain('_waiting_info{for="the storage"} 1\n');
});

test("a client that waits for changes goes on with the next store, or is rejected if there is none", async () => {
  await using first = await openStandby("first.db", () => 0);
  await using second = await openStandby("second.db", () => 0);
  await newUser(second);
  const { call, replace } = makeServer();
  const spies = [first, second].map(({ changes }) => spyOn(changes, "subscribe"));
  const countWaits = () => spies.reduce((sum, { mock }) => sum + mock.calls.length, 0);
  async function wait(after = 1) {
    const before = countWaits();
    const response = call("GET", `/changes?after=${after}&wait=60`);
    while (countWaits() === before) await Bun.sleep(1);
    return { response };
  }
  replace(first);
  const rejected = await wait();
  replace(null);
  expect((await rejected.response).status).toBe(503);
  replace(first);
  const continued = await wait();
  replace(second);
  expect(JSON.parse((await continued.response).text).meta.last).toBe(2);
  const woken = await wait(2);
  replace(first);
  replace(second);
  await newUser(second);
  expect(JSON.parse((await woken.response).text).meta.last).toBe(3);
});
