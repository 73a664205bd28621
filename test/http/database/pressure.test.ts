import { expect, test } from "bun:test";
import { systemCode } from "../../../src/base/error.ts";
import { newToken } from "../../../src/domain/token.ts";
import { againstCitus, againstPostgres, holdWrites } from "../backend.ts";
import { expectError, newEmail, newUser } from "../make.ts";
import { chunked, rawRequest } from "../raw.ts";
import { startReplica, startServer, type TestResponse, type TestServer } from "../server.ts";

function expectBusy(response: TestResponse, message: string): void {
  expectError(response, 503, message);
  expect(response.headers.get("retry-after")).toBe("2");
}

/** Starts a server whose writes wait on PostgreSQL for as long as a table is held. */
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

/** The server does not read the body of a request that it rejects, so the client can miss the response. */
function ignoreReset(error: unknown): null {
  if (systemCode(error) !== "ECONNRESET") throw error;
  return null;
}

const manyWrites = "too many writes are in progress";

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
    let settled = 0;
    const posts = Array.from({ length: 140 }, () =>
      postUser(server, server.writeToken)
        .catch(ignoreReset)
        .finally(() => {
          settled += 1;
        }),
    );
    while (settled < 12) await Bun.sleep(1);
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
    const ofOther = [postUser(server, other), postUser(server, other)];
    // On PostgreSQL, it writes to a table that is not held.
    const health = server.call("GET", "/health");
    expect((await server.call("GET", `/users/${user.id}`)).status).toBe(200);
    await held[Symbol.asyncDispose]();
    for (const { status } of await Promise.all(ofOther)) expect(status).toBe(201);
    expect((await health).status).toBe(200);
    const responses = await Promise.all(posts);
    const rejected = responses.filter((response) => response?.status !== 201);
    expect(rejected).toHaveLength(12);
    for (const response of rejected) if (response !== null) expectBusy(response, manyWrites);
    expect((await postUser(server, server.writeToken)).status).toBe(201);
  },
);
