// Requests of several clients arrive in one turn of the event loop: the server is stopped while they are sent.
import { afterAll, beforeAll, expect } from "bun:test";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { newEmail } from "../http/make.ts";
import { rawRequest } from "../http/raw.ts";
import { againstBinary, logs, startServer, type TestServer } from "../http/server.ts";
import { withStore } from "../support/open-store.ts";
import { test } from "./on-binary.ts";

const REQUESTS = 300;
/** It takes long compared with other requests. */
const page = "/api/v1/users?limit=1000";

let server: TestServer;
beforeAll(async () => {
  if (!againstBinary) return;
  server = await startServer();
  const create = () => ({ email: newEmail(), name: null, metadata: {} });
  const users = Array.from({ length: 1_000 }, create);
  await withStore(server.database, ({ bulk }) => bulk.users.import(users));
});
afterAll(() => server?.[Symbol.asyncDispose]());

async function open(): Promise<Socket> {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  await once(socket.on("error", () => {}).resume(), "connect");
  return socket;
}

function write(socket: Socket, request: string): Promise<void> {
  return new Promise((resolve) => socket.write(request, () => resolve()));
}

function send(socket: Socket, target: string, token: string): Promise<void> {
  return write(socket, rawRequest("GET", target, { token, keepAlive: true }));
}

/**
 * Runs `work` while the server is stopped.
 * @returns the log since then, when this number of requests has been handled, in their order
 */
async function logWhenStopped(count: number, work: () => Promise<void>) {
  const { length: start } = await logs(server);
  const pid = server.pid ?? 0;
  process.kill(pid, "SIGSTOP");
  try {
    await work();
  } finally {
    process.kill(pid, "SIGCONT");
  }
  for (;;) {
    // `logs` itself sends requests, without a token.
    const lines = (await logs(server)).slice(start);
    const ours = lines.filter(({ token }) => token !== undefined);
    if (ours.length >= count) return lines;
    await Bun.sleep(10);
  }
}

test("a request is handled before most pages of another client that have arrived before it", async () => {
  const sockets = await Promise.all(Array.from({ length: REQUESTS }, open));
  const other = await open();
  const lines = await logWhenStopped(REQUESTS + 1, async () => {
    for (const socket of sockets) await send(socket, page, server.readToken);
    await send(other, "/api/v1/users/1", server.writeToken);
  });
  const position = lines.findIndex(({ token }) => token === "write-test");
  expect(position).toBeWithin(0, REQUESTS / 2);
  for (const socket of [...sockets, other]) socket.destroy();
});

test("bodies of requests that wait for their turn count as those of writes in progress", async () => {
  // So few that all pages are handed over in one turn, of which most then wait.
  const sockets = await Promise.all(Array.from({ length: 60 }, open));
  // 200 bodies of 60 kB exceed half of 16 MiB.
  const writers = await Promise.all(Array.from({ length: 200 }, open));
  const json = JSON.stringify({ email: "x".repeat(60_000) });
  const create = { token: server.writeToken, json, keepAlive: true };
  const lines = await logWhenStopped(sockets.length + writers.length, async () => {
    for (const socket of sockets) await send(socket, page, server.writeToken);
    for (const socket of writers) await write(socket, rawRequest("POST", "/api/v1/users", create));
  });
  // Those that are read are invalid.
  const statuses = new Set(
    lines.flatMap(({ method, status }) => (method === "POST" ? [status] : [])),
  );
  expect(statuses).toEqual(new Set([400, 503]));
  for (const socket of [...sockets, ...writers]) socket.destroy();
});
