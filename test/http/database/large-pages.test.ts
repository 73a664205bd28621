// Pages of more than 256 KiB: how large they may be, what their readers may hold, and that they are exact.
import { expect, test } from "bun:test";
import type { Socket } from "node:net";
import { withStore } from "../../support/open-store.ts";
import { metricOf, newEmail } from "../make.ts";
import { rawRequest, sendOnly } from "../raw.ts";
import { startSharedServer } from "../server.ts";

/** More records of this size than fit into a page of 4 MiB. */
const RECORDS = 80;
/** Of all tokens together. */
const UNSENT_BYTES = 32 * 2 ** 20;

/** 63 kB, with characters that JSON escapes, or that have several bytes. */
function makeMetadata(characters: number) {
  const value = "漢".repeat(characters) + '"\\\n'.repeat(10);
  return Object.fromEntries(Array.from({ length: 43 }, (_, at) => [`field-${at}`, value]));
}

/** 66 of them fit into a page, but only 65 with the other fields of their records. */
const metadata = makeMetadata(467);
/** 65 of them fit into a page, with the other fields or without. */
const metadataOfOrders = makeMetadata(470);

const server = await startSharedServer();
await withStore(server.database, async ({ bulk }) => {
  const all = Array.from({ length: RECORDS });
  await bulk.users.import(all.map(() => ({ email: newEmail(), name: null, metadata })));
  const items = [{ sku: "a", quantity: 1, unit_price: 1 }];
  const order = { user_id: 1, currency: "EUR", items, total: 1, metadata: metadataOfOrders };
  await bulk.orders.import(all.map(() => ({ ...order, reference: crypto.randomUUID() })));
});

const SERVED = 'http_requests_total{method="GET",route="/api/v1/users",status="200"}';

const unsentBytes = () => metricOf(server, "user_api_unsent_bytes");

async function untilSent(): Promise<void> {
  while ((await unsentBytes()) > 0) await Bun.sleep(10);
}

function requestOf(path: string): string {
  return rawRequest("GET", `/api/v1${path}`, { token: server.writeToken, keepAlive: true });
}

const stall = (path: string) => sendOnly(server, requestOf(path));

/** Requests a page until the server cannot send it, since the operating system buffers several. */
async function stallUntilUnsent(path: string): Promise<Socket> {
  const [before, served] = [await unsentBytes(), () => metricOf(server, SERVED)];
  let pages = await served();
  const socket = await stall(path);
  for (;;) {
    while ((await served()) === pages) await Bun.sleep(1);
    if ((await unsentBytes()) > before) return socket;
    pages = await served();
    socket.write(requestOf(path));
  }
}

test.each([
  ["/users?limit=1000", RECORDS],
  ["/users?sort=-id&limit=1000&after=70", RECORDS],
  ["/orders?limit=67", RECORDS],
  ["/orders?status=pending&sort=-id&limit=1000", RECORDS],
  ["/orders?user_id=1&status=pending&limit=1000&offset=1", RECORDS],
  ["/changes?include=record&limit=1000", 2 * RECORDS],
])("GET %s returns 400 with a limit that is allowed when it exceeds 4 MiB", async (path, total) => {
  const { status, json } = await server.call("GET", path);
  const limit = 50;
  const problem = "must be at most 50 here, since the page would exceed 4 MiB";
  expect([status, json.error]).toEqual([400, `Validation failed: limit ${problem}`]);
  expect(json.meta.allowed).toEqual({ limit });
  const page = await server.call("GET", path.replace(/limit=\d+/, `limit=${limit}`));
  expect(page.status).toBe(200);
  expect(page.json.data).toHaveLength(limit);
  for (const { record, record_id } of page.json.data) expect(record?.id).toBe(record_id);
  expect(page.json.meta).toMatchObject({ total, limit });
});

test("large pages return 503 and small ones 200 when other clients of the token stop reading", async () => {
  const path = "/users?limit=60";
  const readers: Socket[] = [];
  for (let count = 0; count < 4; count += 1) readers.push(await stallUntilUnsent(path));
  const { status, headers, json } = await server.call("GET", path);
  expect([status, headers.get("retry-after")]).toEqual([503, "2"]);
  expect(json.error).toContain("too many large pages");
  expect((await server.call("GET", "/users?limit=4")).status).toBe(200);
  expect((await server.call("GET", "/health", { token: null })).status).toBe(200);
  expect(await unsentBytes()).toBeWithin(UNSENT_BYTES / 4, UNSENT_BYTES / 2 + 1);
  // Half of the memory is for other clients.
  const other = await server.call("GET", path, { token: server.readToken });
  expect(other.status).toBe(200);
  for (const reader of readers) reader.destroy();
  await untilSent();
  expect((await server.call("GET", path)).status).toBe(200);
});

test("the server frees a large page when its client disconnects before it is built, or sends HEAD", async () => {
  for (let round = 0; round < 2; round += 1) {
    const clients = await Promise.all(Array.from({ length: 4 }, () => stall("/users?limit=60")));
    for (const client of clients) client.destroy();
  }
  const head = await server.call("HEAD", "/users?limit=60");
  expect([head.status, head.text]).toEqual([200, ""]);
  await untilSent();
  expect((await server.call("GET", "/users?limit=60")).status).toBe(200);
});
