// The change feed through HTTP: pages, links, and clients that wait.
import { expect, test } from "bun:test";
import { newToken } from "../../../src/domain/token.ts";
import { withStore } from "../../support/open-store.ts";
import { expectError, links, metricOf, newUser } from "../make.ts";
import { openMany, rawRequest } from "../raw.ts";
import { createToken, startServer, startSharedServer, type TestServer } from "../server.ts";

const apiToken = newToken();
const server = await startSharedServer({ API_TOKEN: apiToken });

const path = "/changes";
const largest = "9007199254740991"; // 2^53 − 1

const list = (query = "", on: TestServer = server) => on.call("GET", `${path}${query}`);
const metaOf = async (on: TestServer = server) => (await list("?limit=1", on)).json.meta;

const waitingClients = (on: TestServer = server) => metricOf(on, "user_api_waiting_clients");

/** Polls until so many clients wait, or the test times out. */
async function untilWaiting(count: number, on: TestServer = server): Promise<void> {
  while ((await waitingClients(on)) !== count) await Bun.sleep(5);
}

function openWaiting(count: number, target: string, token: string): Promise<Disposable> {
  const bytes = rawRequest("GET", `/api/v1${target}`, { token, keepAlive: true });
  return openMany(server, bytes, count);
}

test("GET /changes has links to the first, previous and last page when it begins at an offset", async () => {
  for (let at = 0; at < 12; at += 1) await newUser(server);
  const { last, feed } = await metaOf();
  const offset = last - (last % 3 === 0 ? 3 : last % 3);
  expect(links(await list("?limit=3&offset=3&include=record"))).toEqual({
    first: `${path}?limit=3&offset=0&include=record`,
    prev: `${path}?limit=3&offset=0&include=record`,
    next: `${path}?limit=3&after=6&feed=${feed}&include=record`,
    last: `${path}?limit=3&offset=${offset}&include=record`,
  });
  const past = await list(`?limit=3&offset=${largest}&wait=0`);
  expect([past.status, past.json.data, past.json.meta.total]).toEqual([200, [], last]);
  const end = `${path}?limit=3&after=${last}&feed=${feed}`;
  expect([past, await server.call("GET", end)].map((at) => links(at)["next"])).toEqual([end, end]);
  expect(links(await list("?limit=3&after=6"))).toEqual({
    first: `${path}?limit=3&after=0&feed=${feed}`,
    next: `${path}?limit=3&after=9&feed=${feed}`,
  });
});

// That a history has the changes of its record is a rule of the model of the contract.
test("a deleted user has a history with pages and their links, a record that never existed is not found, and a history takes only what a list takes", async () => {
  const user = await newUser(server, { name: "Ann" });
  await server.call("PUT", `/users/${user.id}`, { body: { email: "ΑΣ@example.com" } });
  await server.call("DELETE", `/users/${user.id}`);
  const history = `/users/${user.id}/changes`;
  const { json } = await server.call("GET", history, { token: server.readToken });
  expect(json.data).toMatchObject([
    { type: "user.created", version: 1, token: "write-test", fields: null },
    { type: "user.updated", version: 2, status: null, fields: ["email", "name"] },
    { type: "user.deleted", record_id: user.id, fields: null },
  ]);
  expect(json.meta).toEqual({ total: 3, limit: 50, offset: 0 });
  const [, { id }, last] = json.data;
  const newest = await server.call("GET", `${history}?sort=-id&limit=1&after=${last.id}`);
  expect(links(newest)["next"]).toBe(`${history}?limit=1&after=${id}&sort=-id`);
  expectError(await server.call("GET", "/users/999999/changes"), 404, "user not found");
  const { status, text } = await server.call("GET", "/orders/999999/changes");
  expect([status, text]).toEqual([404, "order not found"]);
  for (const name of ["include", "feed", "wait"]) {
    const response = await server.call("GET", `/users/${user.id}/changes?${name}=record`);
    expectError(response, 400, `Validation failed: ${name} is not allowed`);
  }
});

test("GET /changes returns 410 changes_reset when the client has read another feed or further than the last change", async () => {
  const { last, feed } = await metaOf();
  for (const [query, problem] of [
    [`?after=${last + 1}`, `there is no change ${last + 1}, the last one is ${last}`],
    ["?after=0&feed=other", "the feed other has ended"],
    [`?after=${last}&feed=${feed}a&wait=60`, `the feed ${feed}a has ended`],
  ] as const) {
    const response = await list(query);
    expectError(response, 410, `${problem}: synchronize again`);
    expect(response.json.meta.code).toBe("changes_reset");
  }
});

test("a waiting client gets the next change and the link to the one after it, or an empty page when its time is over", async () => {
  for (const [query, token] of [
    ["include=record&", server.readToken],
    ["", apiToken],
  ] as const) {
    const { last, feed } = await metaOf();
    const target = `${path}?${query}after=${last}&feed=${feed}&wait=60`;
    const waiting = server.call("GET", target, { token });
    await untilWaiting(1);
    const user = await newUser(server);
    const response = await waiting;
    expect(response.json.data).toMatchObject([{ id: last + 1, record_id: user.id }]);
    if (query !== "") expect(response.json.data[0].record).toEqual(user);
    const include = query === "" ? "" : "&include=record";
    expect(links(response)["next"]).toBe(
      `${path}?limit=50&after=${last + 1}&feed=${feed}${include}&wait=60`,
    );
    await untilWaiting(0);
  }
  const { last, feed } = await metaOf();
  const { status, json } = await list(`?after=${last}&feed=${feed}&wait=1`);
  expect([status, json.data, json.meta.last]).toEqual([200, [], last]);
});

test("a client whose token was revoked meanwhile is rejected when it gets a change or has waited", async () => {
  const token = await createToken(server.database, "short-lived", "read");
  const { last } = await metaOf();
  const wait = (seconds: number) =>
    server.call("GET", `${path}?after=${last}&wait=${seconds}&include=record`, { token });
  // On PostgreSQL, a revocation takes effect within 5 s. Both have to wait until then, however busy the machine is.
  const [long, short] = [wait(60), wait(7)];
  await untilWaiting(2);
  await withStore(server.database, ({ tokens }) => tokens.revoke("short-lived"));
  const hasWaited = await short;
  await newUser(server);
  for (const { status, headers, text } of [hasWaited, await long]) {
    expect([status, text]).toEqual([401, "unauthorised"]);
    expect(headers.get("www-authenticate")).toBe('Bearer error="invalid_token"');
  }
  await untilWaiting(0);
});

test("a token that has half of the places gets no more, others get theirs, and clients that disconnect are forgotten", async () => {
  const { last } = await metaOf();
  const target = `${path}?after=${last}&wait=60`;
  {
    using _clients = await openWaiting(512, target, server.writeToken);
    await untilWaiting(512);
    const refused = await server.call("GET", target);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "2"]);
    expect(refused.json.error).toBe("too many clients wait for changes");
    const ofOther = { token: server.readToken };
    const { status, json } = await server.call("GET", `${path}?after=${last}&wait=1`, ofOther);
    expect([status, json.data]).toEqual([200, []]);
    // The other half is for any other token.
    using _others = await openWaiting(512, target, server.readToken);
    await untilWaiting(1024);
    expect((await server.call("GET", target, { token: apiToken })).status).toBe(503);
    // It still reads, because that needs no place.
    expect((await list(`?after=${last - 1}&wait=60`)).status).toBe(200);
    expect((await list(`?after=${last}`)).status).toBe(200);
  }
  await untilWaiting(0);
});

test("shutdown answers waiting clients with an empty page", async () => {
  await using other = await startServer({ SHUTDOWN_SECONDS: "60" });
  await newUser(other);
  const clients = Array.from({ length: 20 }, () => list("?after=1&wait=60", other));
  await untilWaiting(20, other);
  const stopped = other.stop();
  for (const { status, json, headers } of await Promise.all(clients)) {
    expect([status, json.data, json.meta.last]).toEqual([200, [], 1]);
    expect(headers.get("connection")).toBe("close");
  }
  expect(await stopped).toBe(0);
});
