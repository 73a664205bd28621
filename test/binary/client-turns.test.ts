// Requests of several clients arrive in one turn of the event loop: the server is stopped while they are sent.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { newEmail } from "../http/make.ts";
import { rawRequest } from "../http/raw.ts";
import { againstBinary, logs, startServer, type TestServer } from "../http/server.ts";

const PAGES = 300;
/** It takes long compared with other requests. */
const page = "/api/v1/users?limit=1000";

let server: TestServer;
beforeAll(async () => {
  if (!againstBinary) return;
  server = await startServer();
  const headers = {
    authorization: `Bearer ${server.writeToken}`,
    "content-type": "application/json",
  };
  const create = async () => {
    const body = JSON.stringify({ email: newEmail() });
    const response = await fetch(`${server.url}/api/v1/users`, { method: "POST", headers, body });
    expect(response.status).toBe(201);
  };
  for (let created = 0; created < 1_000; created += 100) {
    await Promise.all(Array.from({ length: 100 }, create));
  }
});
afterAll(() => server?.[Symbol.asyncDispose]());

/** @returns a connection that discards what it receives */
function open(): Promise<Socket> {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on("error", () => {}).resume();
  return new Promise((resolve) => socket.on("connect", () => resolve(socket)));
}

function send(socket: Socket, target: string, token: string): Promise<void> {
  const request = rawRequest("GET", target, { token, keepAlive: true });
  return new Promise((resolve) => socket.write(request, () => resolve()));
}

/** Runs `work` while the server is stopped. */
async function whileStopped(work: () => Promise<void>): Promise<void> {
  const pid = server.pid ?? 0;
  process.kill(pid, "SIGSTOP");
  try {
    await work();
  } finally {
    process.kill(pid, "SIGCONT");
  }
}

/** @returns the log since a line, when this number of requests with a token has been handled, in their order */
async function requestsSince(start: number, count: number) {
  for (;;) {
    const lines = (await logs(server)).slice(start);
    if (lines.filter(({ token }) => token !== undefined).length >= count) return lines;
    await Bun.sleep(10);
  }
}

test.if(againstBinary)(
  "a request is handled before most pages of another client when these have arrived before it",
  async () => {
    const { length: start } = await logs(server);
    const pages = await Promise.all(Array.from({ length: PAGES }, open));
    const other = await open();
    await whileStopped(async () => {
      for (const socket of pages) await send(socket, page, server.readToken);
      await send(other, "/api/v1/users/1", server.writeToken);
    });
    const lines = await requestsSince(start, PAGES + 1);
    const position = lines.findIndex(({ token }) => token === "write-test");
    expect(position).toBeWithin(0, PAGES / 2);
    for (const socket of [...pages, other]) socket.destroy();
  },
  120_000,
);

test.if(againstBinary)(
  "a page is not read when its client has disconnected while it waited for its turn",
  async () => {
    const { length: start } = await logs(server);
    const pages = await Promise.all(Array.from({ length: PAGES }, open));
    await whileStopped(async () => {
      for (const socket of pages) {
        await send(socket, page, server.readToken);
        socket.destroy();
      }
    });
    const lines = await requestsSince(start, PAGES);
    expect(lines.map(({ reason }) => reason)).toContain("the client has disconnected");
  },
  120_000,
);
