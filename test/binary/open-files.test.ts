// Each connection needs an open file. A process that has used up its open files cannot start a thread any more, and Bun ends
// it when it tries.
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { CHECKPOINT_PAGES } from "../../src/sqlite/file/connection.ts";
import { newEmail } from "../http/make.ts";
import { rawRequest, sendRaw } from "../http/raw.ts";
import { startServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { binary, startProgram } from "../support/program.ts";
import { createUser, stop, token, urlOf } from "./archived-place.ts";
import { fillLog } from "./disk.ts";
import { isRoot, testIf } from "./on-binary.ts";

const fixtures = `${import.meta.dir}/../fixtures`;

const OPEN_FILES = 96;
const test = testIf(existsSync("/proc/self/fd"));

/** @param command runs in the shell that becomes the server */
function startAfter(command: string, settings: Readonly<Record<string, string>>) {
  const env = { PORT: "0", PATH: Bun.env["PATH"], API_TOKEN: token, ...settings };
  return startProgram(["sh", "-c", `${command}; exec "$0" serve`, binary], { env });
}

function limitedServer(settings: Readonly<Record<string, string>>) {
  return startAfter(`ulimit -n ${OPEN_FILES}`, settings);
}

function connectMany(url: string, bytes: string | Uint8Array, count = 2 * OPEN_FILES): Socket[] {
  const port = Number(new URL(url).port);
  return Array.from({ length: count }, () => {
    const socket = connect({ host: "127.0.0.1", port }, () => socket.write(bytes));
    return socket.on("error", () => {}).resume();
  });
}

/** The beginning of a TLS ClientHello. */
const unfinishedHello = Uint8Array.of(22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, ...Array(400).fill(7));
const publicRequest = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n";
const unfinishedRequest = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX-Unfinished: ";
const trusting = { tls: { rejectUnauthorized: false } };
const tls = { TLS_CERT: `${fixtures}/localhost.crt`, TLS_KEY: `${fixtures}/localhost.key` };

test.each([
  ["an unfinished request", unfinishedRequest, {}],
  ["an unfinished request after a public one", publicRequest + unfinishedRequest, {}],
  ["no request after a public one", publicRequest, {}],
  ["an unfinished handshake", unfinishedHello, tls],
] as const)("clients are served while others hold %s", async (what, bytes, settings) => {
  using directory = makeDirectory();
  const database = directory.at("a.db");
  const server = limitedServer({ DATABASE_URL: database, ...settings });
  const url = await urlOf(server);
  const headers = { authorization: `Bearer ${token}` };
  const call = (path: string, init: object = {}) =>
    fetch(`${url}/api/v1${path}`, { headers, keepalive: false, ...trusting, ...init });
  const change = call("/changes?after=0&wait=60");
  while (!/^user_api_waiting_clients 1$/m.test(await (await call("/metrics")).text()));
  const clients = connectMany(url, bytes);
  // Its own connection can be among those that are closed before it has sent its request.
  const isServed = () => call("/health").then(Boolean, () => false);
  // Those that are answered while half of the places are taken are closed without this line.
  const isAnswered = () => what.endsWith("public one") && clients.some(({ closed }) => closed);
  const isClosed = () => server.output().includes("idle connections closed") || isAnswered();
  while (!(await isServed()) || !isClosed());
  const body = JSON.stringify({ email: newEmail() });
  expect((await call("/users", { method: "POST", body })).status).toBe(201);
  expect(await (await change).json()).toMatchObject({ data: [{ type: "user.created" }] });
  for (const client of clients) client.destroy();
  await stop(server);
});

test("serve survives a checkpoint when clients use up its open files", async () => {
  using directory = makeDirectory();
  const database = directory.at("a.db");
  const server = limitedServer({ DATABASE_URL: database });
  const url = await urlOf(server);
  const create = async () => expect((await createUser(url)).status).toBe(201);
  using log = new Database(database);
  /** A log whose pages have all been copied begins again with the next commit. */
  const logPages = () => log.query("pragma wal_checkpoint(noop)").values()[0]?.[1];
  await create();
  // Connections with a request in progress are kept.
  const json = JSON.stringify({ email: newEmail() });
  const unfinished = rawRequest("POST", "/api/v1/users", { token, json }).slice(0, -1);
  const writers = connectMany(url, unfinished, 2);
  await Promise.all(writers.map((writer) => once(writer, "connect")));
  // When the server responds, it has read what was sent before.
  await create();
  const clients = connectMany(url, unfinished);
  while (readdirSync(`/proc/${server.pid}/fd`).length < OPEN_FILES) await Bun.sleep(5);
  // The first one starts a checkpoint, which fails because it cannot open the files, and the second one waits for it.
  fillLog(database);
  for (const [at, writer] of writers.entries()) {
    const response = once(writer, "data");
    writer.write("}");
    expect(`${await response}`).toStartWith(`HTTP/1.1 ${at === 0 ? 201 : 409}`);
  }
  expect(logPages()).toBeGreaterThan(CHECKPOINT_PAGES);
  expect(server.output()).toContain(`the limit of open files is ${OPEN_FILES}: `);
  for (const client of clients) client.destroy();
  while (readdirSync(`/proc/${server.pid}/fd`).length >= OPEN_FILES) await Bun.sleep(5);
  // The next one succeeds.
  fillLog(database);
  while (Number(logPages()) > CHECKPOINT_PAGES) await create();
  expect(server.hasExited()).toBe(false);
  await stop(server);
});

/** Directory of the memory control groups, of version 1; tests with a memory limit need it, and root. */
const MEMORY_GROUPS = "/sys/fs/cgroup/memory";

const unfinishedHeader = `GET / HTTP/1.1\r\nHost: localhost\r\nX-Unfinished: ${"x".repeat(7000)}`;

testIf(isLong && isRoot && existsSync(MEMORY_GROUPS)).each([
  ["headers", 15_000, unfinishedHeader, {}],
  ["handshakes", 6_000, unfinishedHello, tls],
] as const)("128 MiB suffice for many unfinished %s", async (_, count, bytes, settings) => {
  using directory = makeDirectory();
  const group = `${MEMORY_GROUPS}/user-api-test-${process.pid}-${count}`;
  mkdirSync(group);
  writeFileSync(`${group}/memory.limit_in_bytes`, `${2 ** 27}`);
  const server = startAfter(`echo $$ > ${group}/cgroup.procs`, {
    DATABASE_URL: directory.at("a.db"),
    ...settings,
  });
  const url = await urlOf(server);
  const headers = { authorization: `Bearer ${token}` };
  const clients: Socket[] = [];
  for (let request = 0; request < 400; request += 1) {
    // The clients and those who are served share this process.
    if (clients.length < count) clients.push(...connectMany(url, bytes, 100));
    const keepalive = request % 10 > 0;
    const response = await fetch(`${url}/api/v1/users`, { headers, keepalive, ...trusting });
    expect(response.status).toBe(200);
    await response.text();
    await Bun.sleep(10);
  }
  expect(server.output()).toContain("idle connections closed");
  for (const client of clients) client.destroy();
  await stop(server);
  rmdirSync(group);
});

test("a request returns 431 when its headers exceed 8 KiB", async () => {
  await using server = await startServer();
  const statusWith = async (length: number) => {
    const headers = [`X-Long: ${"a".repeat(length)}`];
    return (await sendRaw(server, "GET", "/api/v1/users", { headers })).status;
  };
  expect([await statusWith(7_900), await statusWith(8_192)]).toEqual([401, 431]);
});
