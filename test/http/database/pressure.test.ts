import { expect, test } from "bun:test";
import { systemCode } from "../../../src/base/error.ts";
import { newToken } from "../../../src/domain/token.ts";
import { againstCitus, againstPostgres, holdTable, holdWrites } from "../backend.ts";
import { expectError, newEmail, newUser } from "../make.ts";
import { chunked, rawRequest } from "../raw.ts";
import { startReplica, startServer, type TestResponse, type TestServer } from "../server.ts";

function expectBusy(response: TestResponse, message: string): void {
  expectError(response, 503, message);
  expect(response.headers.get("retry-after")).toBe("2");
}

/** Starts a server whose writes and look-ups wait on PostgreSQL for as long as a table is held. */
async function startPatient(settings: Record<string, string> = {}): Promise<TestServer> {
  const own = await startServer(settings);
  if (!againstPostgres) return own;
  const database = `${own.database}&lock_timeout=9000&statement_timeout=9000`;
  const server = await startReplica(database, settings, own);
  return Object.assign(server, {
    async [Symbol.asyncDispose]() {
      await server.stop();
      await own[Symbol.asyncDispose]();
    },
  });
}

function postUser({ call }: TestServer, token: string): Promise<TestResponse> {
  const headers = { "content-type": "application/json" };
  const raw = JSON.stringify({ email: newEmail() }).padEnd(2 ** 16);
  return call("POST", "/users", { raw, headers, token });
}

async function statusesOf(responses: readonly Promise<TestResponse>[]): Promise<number[]> {
  return (await Promise.all(responses)).map(({ status }) => status).sort();
}

/** The server does not read the body of a request that it rejects, so the client can miss the response. */
function ignoreReset(error: unknown): null {
  if (systemCode(error) !== "ECONNRESET") throw error;
  return null;
}

function nthOf<Response>(n: number, responses: readonly Promise<Response>[]): Promise<Response> {
  const { promise, resolve } = Promise.withResolvers<Response>();
  let count = 0;
  for (const response of responses) {
    void response.then((arrived) => {
      count += 1;
      if (count === n) resolve(arrived);
    });
  }
  return promise;
}

const manyWrites = "too many writes are in progress";

const times = <Item>(length: number, make: () => Item) => Array.from({ length }, make);

// On Citus, writes wait for a shorter time.
test.if(!againstCitus)(
  "a write returns 503 before its body is read when its token has half of the bodies, while others succeed",
  async () => {
    const other = newToken();
    await using server = await startPatient({ API_TOKEN: other });
    const user = await newUser(server);
    // Another process writes, so that writes of the server wait.
    const held = await holdWrites(server.database);
    // 128 of 64 KiB are half of the memory.
    const posts = times(140, () => postUser(server, server.writeToken).catch(ignoreReset));
    await nthOf(12, posts);
    expectBusy(await server.call("DELETE", `/users/${user.id}`), manyWrites);
    const headers = ["Content-Type: application/json"];
    const raw = (framing: string) =>
      rawRequest("POST", "/api/v1/users", {
        token: server.writeToken,
        headers: [...headers, framing],
      });
    // The body is not sent.
    const declared = await server.raw(raw("Content-Length: 20"));
    const inChunks = await server.raw(raw("Transfer-Encoding: chunked") + chunked(["{}"]));
    for (const response of [declared, inChunks]) {
      expect(response).toStartWith("HTTP/1.1 503");
      expect(response).toContain(manyWrites);
    }
    const ofOther = times(2, () => postUser(server, other));
    // On PostgreSQL, it writes to a table that is not held.
    const health = server.call("GET", "/health");
    expect((await server.call("GET", `/users/${user.id}`)).status).toBe(200);
    await held[Symbol.asyncDispose]();
    expect(await statusesOf(ofOther)).toEqual([201, 201]);
    expect((await health).status).toBe(200);
    const responses = await Promise.all(posts);
    const rejected = responses.filter((response) => response?.status !== 201);
    expect(rejected).toHaveLength(12);
    for (const response of rejected) if (response !== null) expectBusy(response, manyWrites);
    expect((await postUser(server, server.writeToken)).status).toBe(201);
  },
);

test.if(againstPostgres)(
  "a request with a body returns 503 when too many bodies wait for the look-up of their tokens",
  async () => {
    await using server = await startPatient();
    const held = await holdTable(server.database, "tokens in access exclusive mode");
    const post = () => postUser(server, server.writeToken);
    // 128 of 64 KiB have room.
    const posts = times(140, () => post().catch(ignoreReset));
    await nthOf(12, posts);
    await held[Symbol.asyncDispose]();
    const responses = await Promise.all(posts);
    const rejected = responses.filter((response) => response?.status !== 201);
    expect(rejected.length).toBeWithin(12, 140);
    for (const response of rejected) if (response !== null) expectBusy(response, manyWrites);
    expect((await post()).status).toBe(201);
  },
);
