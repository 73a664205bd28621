// Stops the server while clients use it: requests in flight get a response, and `Connection: close` comes before the port
// is closed.
import { expect } from "bun:test";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { newToken } from "../../src/domain/token.ts";
import { newEmail, newUser } from "../http/make.ts";
import { rawRequest } from "../http/raw.ts";
import { startServer, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { withStore } from "../support/open-store.ts";
import { binary, runProgram } from "../support/program.ts";
import { largeMetadata } from "./disk.ts";
import { isRoot, test, testIf } from "./on-binary.ts";

/** @returns a connection, over TLS if the server has it; its later errors are ignored */
async function open(server: TestServer) {
  const { port, protocol } = new URL(server.url);
  const at = { port: Number(port), host: "127.0.0.1" };
  const isTls = protocol === "https:";
  const socket: Socket = isTls ? connectTls({ ...at, rejectUnauthorized: false }) : connect(at);
  let received = "";
  socket.on("data", (data) => {
    received += data.toString();
  });
  await once(socket, isTls ? "secureConnect" : "connect");
  socket.on("error", () => {});
  return {
    socket,
    send: (text: string) => socket.write(text),
    /** @returns all received text once it matches, or when the server has closed the connection */
    async until(pattern: RegExp): Promise<string> {
      while (!pattern.test(received) && !socket.closed) await Bun.sleep(2);
      return received;
    },
    closed: new Promise<void>((resolve) => socket.on("close", () => resolve())),
  };
}

function get({ writeToken: token }: TestServer, path: string): string {
  return rawRequest("GET", `/api/v1${path}`, { token, keepAlive: true });
}

function post({ writeToken: token }: TestServer): string {
  const json = JSON.stringify({ email: newEmail() });
  return rawRequest("POST", "/api/v1/users", { token, keepAlive: true, json });
}

/** Resolves when the port is closed. Sends no requests: the server waits for a pause between them. */
async function untilPortClosed({ url }: TestServer): Promise<void> {
  for (;;) {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const isOpen = await once(socket, "connect").then(Boolean, () => false);
    socket.destroy();
    if (!isOpen) return;
    await Bun.sleep(2);
  }
}

/** More requests than the server handles before a signal that arrives with them. */
const CHECKS = 300;

test("SIGTERM turns /health to 503 and closes each connection after its next response", async () => {
  await using server = await startServer({ SHUTDOWN_SECONDS: "30" });
  const checks = await Promise.all(Array.from({ length: CHECKS }, () => open(server)));
  const check = get(server, "/health");
  for (const { send } of checks) send(check);
  for (const { until } of checks) expect(await until(/ok/)).not.toMatch(/connection: close/i);
  const [reader, writer] = [await open(server), await open(server)];
  reader.send(get(server, "/users"));
  await reader.until(/"meta"/);
  const request = post(server);
  writer.send(request.slice(0, -5));
  // One more request, so that the first half of the other one has arrived.
  reader.send(get(server, "/orders"));
  await reader.until(/"meta".*"meta"/s);
  // Without requests the port closes after 0.1 s, so that requests sent after the signal could be too late.
  const pid = server.pid ?? 0;
  process.kill(pid, "SIGSTOP");
  const stopped = server.stop("SIGTERM");
  for (const { send } of checks) send(check);
  process.kill(pid, "SIGCONT");
  await Promise.all(checks.map(({ closed }) => closed));
  const responses = await Promise.all(checks.map(({ until }) => until(/^$/)));
  const unhealthy = responses.filter((response) => response.includes("HTTP/1.1 503"));
  expect(unhealthy).not.toBeEmpty();
  for (const response of unhealthy) {
    expect(response).toContain("shutting down");
    expect(response).toMatch(/connection: close/i);
  }
  await untilPortClosed(server);
  writer.send(request.slice(-5));
  const created = await writer.until(/"created_at"/);
  expect(created).toStartWith("HTTP/1.1 201");
  expect(created).toMatch(/connection: close/i);
  await Promise.all([writer.closed, reader.closed, stopped]);
});

const fixtures = `${import.meta.dir}/../fixtures`;
const tls = { TLS_CERT: `${fixtures}/localhost.crt`, TLS_KEY: `${fixtures}/localhost.key` };

const canCount = existsSync("/proc/self/fd");

/** @returns 0 where the system does not tell it */
function countOpenFiles({ pid }: TestServer): number {
  return canCount ? readdirSync(`/proc/${pid}/fd`).length : 0;
}

/** From nothing to a part of the next request. */
const idle = [
  "",
  "GET /api/v1/he",
  "GET /api/v1/health HTTP/1.1\r\nHost: a\r\nX-Requ",
  "GET /api/v1/health HTTP/1.1\r\nHost: a\r\n\r\n",
  "GET /api/v1/health HTTP/1.1\r\nHost: a\r\n\r\nGET /api",
];

for (const [what, settings] of [
  ["plain TCP", {}],
  ["TLS", tls],
] as const)
  test(`SIGTERM over ${what} waits for a slow reader and an unfinished body, not for idle connections`, async () => {
    await using server = await startServer({ SHUTDOWN_SECONDS: "60", ...settings });
    // More than the operating system buffers.
    const create = () => ({ email: newEmail(), name: null, metadata: largeMetadata });
    const users = Array.from({ length: 150 }, create);
    await withStore(server.database, ({ bulk }) => bulk.users.import(users));
    const accepted = canCount ? countOpenFiles(server) + idle.length + 1 : 0;
    const connections = await Promise.all(idle.map(() => open(server)));
    for (const [at, text] of idle.entries()) if (text !== "") connections[at]?.send(text);
    // One connection without a TLS handshake.
    const silent = connect(Number(new URL(server.url).port), "127.0.0.1").on("error", () => {});
    // Linux accepts a connection without data only after a second (TCP_DEFER_ACCEPT).
    while (countOpenFiles(server) < accepted) await Bun.sleep(5);

    const [reader, writer] = [await open(server), await open(server)];
    reader.send(get(server, "/users?limit=150"));
    await reader.until(/./);
    reader.socket.pause();
    const request = post(server);
    writer.send(request.slice(0, -1));
    // So that the first part of it has arrived.
    const other = await open(server);
    other.send(get(server, "/health"));
    await other.until(/ok/);

    const startedMs = performance.now();
    const stopped = server.stop("SIGTERM");
    await untilPortClosed(server);
    // Longer than the server runs without requests in flight.
    await Bun.sleep(1_000);
    writer.send(request.slice(-1));
    await writer.closed;
    reader.socket.resume();
    expect(await stopped).toBe(0);
    expect(performance.now() - startedMs).toBeLessThan(45_000);
    await reader.closed;
    expect(await writer.until(/^$/)).toStartWith("HTTP/1.1 201");
    const page = await reader.until(/^$/);
    expect(JSON.parse(page.slice(page.indexOf("\r\n\r\n"))).data).toHaveLength(150);
    for (const { socket } of connections) socket.destroy();
    silent.destroy();
  });

testIf(isLong)(
  "a wait outlives the idle timeout of a connection",
  async () => {
    await using server = await startServer();
    await newUser(server);
    const waiting = await open(server);
    waiting.send(get(server, "/changes?after=1&wait=60"));
    // The idle timeout is 30 s.
    await Bun.sleep(35_000);
    await newUser(server);
    expect(await waiting.until(/}$/)).toContain('"data":[{"id":2,');
  },
  180_000,
);

test("serve ignores SIGUSR1, SIGUSR2, SIGALRM and, without a certificate, SIGHUP, and stops cleanly when it receives SIGQUIT", async () => {
  await using server = await startServer();
  for (const signal of ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM"] as const) {
    process.kill(server.pid ?? 0, signal);
    expect((await server.call("GET", "/health")).status).toBe(200);
  }
  // It has no certificate.
  while (!server.output.includes('"nothing to reload"')) await Bun.sleep(2);
  expect(await server.stop("SIGQUIT")).toBe(0);
  expect(server.output).toContain('"event":"stopped"');
});

const canRemoveIpv6 = process.platform === "linux" && isRoot && Bun.which("ip") !== null;

testIf(canRemoveIpv6)("health finds a server on :: when the machine has no IPv6", async () => {
  using directory = makeDirectory();
  const script = `ip link set lo up && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 || exit 9
      "$0" serve & until [ "$("$0" health 2>/dev/null)" = ok ]; do sleep 0.05; done; kill $!; wait $!`;
  const env = {
    DATABASE_URL: directory.at("a.db"),
    HOST: "::",
    API_TOKEN: newToken(),
    PATH: Bun.env["PATH"],
  };
  // The network of the program alone.
  const { code, stdout } = await runProgram(["unshare", "--net", "sh", "-c", script, binary], {
    env,
  });
  expect([code, stdout]).toEqual([0, expect.stringContaining('"event":"stopped"')]);
});
