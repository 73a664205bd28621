// Pages of more than 256 KiB: how large they may be, what their readers may hold, and that they are exact.
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Socket } from "node:net";
import { withStore } from "../../open-store.ts";
import { metricOf, newEmail } from "../make.ts";
import { openMany, rawRequest, readChunked, sendOnly } from "../raw.ts";
import { startServer, type TestServer } from "../server.ts";

/** More users of this size than fit into a page of 16 MiB. */
const USERS = 330;
const MAX_PAGE_BYTES = 16 * 2 ** 20;
/** 63 kB. The maximum size of a body is 64 KiB. */
const metadata = Object.fromEntries(
  Array.from({ length: 42 }, (_, at) => [`field-${at}`, "漢".repeat(500)]),
);
const UNSENT_BYTES = 2 * MAX_PAGE_BYTES;

async function importUsers(on: TestServer, count: number): Promise<void> {
  await withStore(on.database, async ({ bulk }) => {
    for (let left = count; left > 0; left -= 30) {
      const users = Array.from({ length: Math.min(30, left) }, () => ({
        email: newEmail(),
        name: null,
        metadata,
      }));
      await bulk.users.import(users, false);
    }
  });
}

let server: TestServer;
beforeAll(async () => {
  server = await startServer({ MAX_UNSENT_BYTES: `${UNSENT_BYTES}` });
  await importUsers(server, USERS);
}, 60_000);
afterAll(() => server?.[Symbol.asyncDispose]());

/** @returns the largest limit, as named in the error */
async function largestLimit(): Promise<number> {
  const { status, json } = await server.call("GET", "/users?limit=1000");
  expect(status).toBe(400);
  const pattern =
    /^Validation failed: limit must be at most (\d+) here, since the page would exceed 16 MiB$/;
  expect(json.error).toMatch(pattern);
  expect(json.meta.problems).toHaveLength(1);
  return Number(pattern.exec(json.error)?.[1]);
}

const unsentBytes = (on = server) => metricOf(on, "user_api_unsent_bytes");

async function untilSent(): Promise<void> {
  while ((await unsentBytes()) > 0) await Bun.sleep(10);
}

/** Requests a page and reads nothing of it. */
function stall(path: string, token = server.writeToken): Promise<Socket> {
  return sendOnly(server, rawRequest("GET", `/api/v1${path}`, { token, keepAlive: true }));
}

/** Sends more requests without their body than may be unfinished before long bodies count. @returns closes them */
async function openUnfinished(on: TestServer): Promise<Disposable> {
  const post = rawRequest("POST", "/api/v1/users", {
    token: on.writeToken,
    headers: ["Content-Type: application/json", "Content-Length: 10"],
  });
  return openMany(on, post, 65);
}

test("a page returns 400 with the number of records that fit when it exceeds 16 MiB", async () => {
  const limit = await largestLimit();
  const page = await server.call("GET", `/users?limit=${limit}`);
  expect(page.status).toBe(200);
  expect(Buffer.byteLength(page.text)).toBeWithin(MAX_PAGE_BYTES - 70_000, MAX_PAGE_BYTES + 1);
  expect(page.json.data).toHaveLength(limit);
  expect(page.json.meta).toEqual({ total: USERS, limit, offset: 0 });
  expect(page.headers.get("link")).toContain(`offset=${limit}`);
  const larger = await server.call("GET", `/users?limit=${limit + 1}`);
  expect(larger.json.error).toContain(`at most ${limit} here`);
  // Fewer records follow this offset, so the same limit is valid.
  const last = await server.call("GET", `/users?limit=1000&offset=${USERS - 30}`);
  expect([last.status, last.json.data.length]).toEqual([200, 30]);
});

test("GET /users returns large pages in both orders when it begins at an offset or after an id", async () => {
  const ids = async (query: string): Promise<number[]> => {
    const { json } = await server.call("GET", `/users?${query}`);
    return json.data.map(({ id }: { id: number }) => id);
  };
  const all = [...(await ids("limit=200")), ...(await ids("limit=200&offset=200"))];
  expect(all).toEqual(all.toSorted((left, right) => left - right));
  expect(new Set(all).size).toBe(USERS);
  const newest = all.toReversed();
  expect(await ids("sort=-id&limit=20")).toEqual(newest.slice(0, 20));
  expect(await ids("sort=-id&limit=20&offset=7")).toEqual(newest.slice(7, 27));
  expect(await ids("sort=-id&limit=20&after=0")).toEqual(newest.slice(0, 20));
  for (const [sort, sorted] of [
    ["id", all],
    ["-id", newest],
  ] as const) {
    // Whether the page ends with a slice, which has 7 of these records on SQLite, or within one.
    for (const limit of [19, 20, 21, 22, 23]) {
      const query = `limit=${limit}&after=${sorted[49]}&sort=${sort}`;
      const { json, headers } = await server.call("GET", `/users?${query}`);
      const found = json.data.map(({ id }: { id: number }) => id);
      expect(found).toEqual(sorted.slice(50, 50 + limit));
      expect(headers.get("link")).toContain(
        `limit=${limit}&after=${found.at(-1)}&sort=${sort}>; rel="next"`,
      );
    }
  }
});

test("HEAD of a large page has no body and leaves nothing unsent", async () => {
  const { status, text, headers } = await server.call("HEAD", "/users?limit=100");
  expect([status, text]).toEqual([200, ""]);
  expect(headers.get("content-type")).toBe("application/json");
  await untilSent();
});

test("large pages return 503 and small ones 200 when other clients stop reading", async () => {
  const limit = await largestLimit();
  const readers = await Promise.all([
    stall(`/users?limit=${limit}`),
    stall(`/users?limit=${limit}`),
  ]);
  while ((await unsentBytes()) < UNSENT_BYTES / 4) await Bun.sleep(10);
  let response = await server.call("GET", `/users?limit=${limit}`);
  // The operating system buffers a part of each response.
  while (response.status === 200) {
    readers.push(await stall(`/users?limit=${limit}`));
    response = await server.call("GET", `/users?limit=${limit}`);
  }
  expect(response.status).toBe(503);
  expect(response.headers.get("retry-after")).toBe("1");
  expect(response.json.error).toContain("too many large pages");
  expect((await server.call("GET", "/users?limit=2")).status).toBe(200);
  expect((await server.call("GET", "/health", { token: null })).status).toBe(200);
  expect(await unsentBytes()).toBeLessThanOrEqual(UNSENT_BYTES);
  // Half of the memory is for other clients.
  const other = await server.call("GET", `/users?limit=${limit}`, { token: server.readToken });
  expect(other.status).toBe(200);
  for (const reader of readers) reader.destroy();
  await untilSent();
  expect((await server.call("GET", `/users?limit=${limit}`)).status).toBe(200);
});

test("every body of more than 32 KiB is counted when many requests are unfinished", async () => {
  const framing = async (token: string | null, path = "/users?limit=4") => {
    const { status, headers, text } = await server.call("GET", path, { token });
    expect([status, text.trimEnd().slice(-1)]).toEqual([200, "}"]);
    return headers.get("transfer-encoding") ?? "none";
  };
  expect(await framing(server.writeToken)).toBe("none");
  const requests = await openUnfinished(server);
  while ((await framing(server.writeToken)) === "none") await Bun.sleep(10);
  expect(await framing(server.readToken)).toBe("chunked");
  expect(await framing(server.readToken, "/users/1")).toBe("chunked");
  for (const body of [{}, { name: "Long" }]) {
    const changed = await server.call("PATCH", "/users/1", { body });
    expect([changed.status, changed.headers.get("transfer-encoding")]).toEqual([200, "chunked"]);
  }
  const { etag = "" } = (await server.call("GET", "/users/1")).headers.toJSON();
  const headers = { "If-None-Match": etag };
  expect((await server.call("GET", "/users/1", { headers })).status).toBe(304);
  await untilSent();
  expect(await framing(null, "/openapi.json")).toBe("chunked");
  expect(await framing(server.readToken, "/orders")).toBe("none");
  requests[Symbol.dispose]();
  while ((await framing(server.writeToken)) === "chunked") await Bun.sleep(10);
});

test("an asset returns 503 when many requests are unfinished and others take the memory", async () => {
  await using other = await startServer({ MAX_UNSENT_BYTES: "1" });
  await importUsers(other, 100);
  const asset = () => other.call("GET", "/docs/swagger-ui.js", { token: null });
  const { text } = await asset();
  const page = rawRequest("GET", "/api/v1/users?limit=100", { token: other.writeToken });
  const reader = await sendOnly(other, page);
  while ((await unsentBytes(other)) === 0) await Bun.sleep(10);
  expect((await asset()).text).toBe(text);
  using _requests = await openUnfinished(other);
  let response = await asset();
  while (response.status === 200) response = await asset();
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "1"]);
  expect((await other.call("GET", "/docs", { token: null })).status).toBe(200);
  reader.destroy();
  // The metrics may be rejected as well until then.
  while ((await unsentBytes(other)) !== 0) await Bun.sleep(10);
  const sent = await asset();
  expect([sent.status, sent.headers.get("transfer-encoding")]).toEqual([200, "chunked"]);
  expect(sent.text).toBe(text);
});

test("the server frees a large page when its client disconnects before it is built", async () => {
  for (let round = 0; round < 2; round += 1) {
    const clients = await Promise.all(Array.from({ length: 4 }, () => stall("/users?limit=100")));
    for (const client of clients) client.destroy();
  }
  await untilSent();
  expect((await server.call("GET", "/users?limit=100")).status).toBe(200);
});

test("GET /users is complete for a slow client while other pages are built and users are written", async () => {
  const slow = await stall("/users?limit=120");
  const others = Promise.all(
    Array.from({ length: 6 }, (_, at) => server.call("GET", `/users?limit=60&offset=${100 + at}`)),
  );
  const body = { name: "changed meanwhile" };
  expect((await server.call("PATCH", "/users/5", { body })).status).toBe(200);
  let received = Buffer.alloc(0);
  slow.on("data", (data: Buffer) => {
    received = Buffer.concat([received, data]);
    slow.pause();
    setTimeout(() => slow.resume(), 1);
  });
  slow.resume();
  while (!received.includes("\r\n0\r\n\r\n")) await Bun.sleep(5);
  slow.destroy();
  for (const other of await others) expect([200, 503]).toContain(other.status);
  const { data, meta } = JSON.parse(`${readChunked(received)}`);
  expect(data.map(({ id }: { id: number }) => id)).toEqual(
    Array.from({ length: 120 }, (_, at) => at + 1),
  );
  for (const user of data) expect(user.metadata).toEqual(metadata);
  expect(meta.total).toBe(USERS);
});

test("total and the records of a large page agree while users are created and deleted", async () => {
  const writing = (async () => {
    for (let round = 0; round < 30; round += 1) {
      const { json } = await server.call("POST", "/users", { body: { email: newEmail() } });
      await server.call("DELETE", `/users/${json.data.id}`);
    }
  })();
  const offset = USERS - 40;
  for (let round = 0; round < 8; round += 1) {
    const { json } = await server.call("GET", `/users?limit=1000&offset=${offset}`);
    expect(json.data).toHaveLength(json.meta.total - offset);
  }
  await writing;
});
