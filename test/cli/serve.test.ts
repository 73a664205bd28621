import { expect, test as inTurn } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { AppError } from "../../src/base/error.ts";
import type { Environment } from "../../src/base/secret.ts";
import type { Backend } from "../../src/domain/store.ts";
import { newToken } from "../../src/domain/token.ts";
import { openSqlite } from "../../src/sqlite/backend.ts";
import { fillDatabase } from "../support/fill.ts";
import { createToken, failed, makeHarness, openWith, parsedLines } from "./harness.ts";

// Most tests only wait for something.
const test = inTurn.concurrent;

function get({ url }: { url: string }, path: string, token?: string): Promise<Response> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  return fetch(`${url}/api/v1${path}`, { headers, tls: { rejectUnauthorized: false } });
}

const secret = /uat_[0-9A-Za-z]{36}/g;

test("serve prints the first token to stderr, with a working curl line, on the first start only", async () => {
  using world = makeHarness();
  const first = await world.serve();
  const curl = /^ {2}curl -H '([\w-]+): ([^']+)' (\S+)$/m;
  const [, field = "", value = "", url = ""] = curl.exec(await first.printed(curl)) ?? [];
  expect((await fetch(url, { headers: { [field]: value } })).status).toBe(200);
  const { code, stdout, stderr } = await first.stop();
  expect(code).toBe(0);
  // stdout can be piped to a JSON parser.
  for (const line of stdout.trimEnd().split("\n")) expect(JSON.parse(line)).toBeObject();
  // Once alone and once in the curl command.
  const shown = stderr.match(secret) ?? [];
  expect([shown.length, new Set(shown).size]).toEqual([2, 1]);
  expect(stderr).toContain(`API reference:         ${first.url}/api/v1/docs\n`);
  expect(stderr).toContain("Create another token:  ./user-api token create NAME\n");

  const second = await world.serve();
  expect((await get(second, "/users", shown[0])).status).toBe(200);
  expect((await second.stop()).stderr).toBe("");
  // Nor when all are revoked: an operator who does that wants no new one.
  await world.run("token", "revoke", "first");
  const third = await world.serve();
  expect((await get(third, "/users", shown[0])).status).toBe(401);
  expect((await third.stop()).stderr).toBe("");
});

const limitIs = (limit: number) => `the limit of open files is ${limit}`;

test.each([
  [4095, 2 ** 40, [`${limitIs(4095)}: raise it to 4096 or more`]],
  [4096, 2 ** 40, []],
  [2048, 2 ** 27, []],
  [2047, 2 ** 27, [`${limitIs(2047)}: raise it to 2048 or more`]],
  // The system did not lower it.
  [2049, 2 ** 27, [`${limitIs(2049)}: lower it to 2048, for which the memory is enough`]],
])("serve warns of %i open files and %i bytes of memory", async (limit, bytes, warnings) => {
  const openStore: Backend["open"] = (options) => {
    options.onWarning?.("the disk is old");
    return openSqlite(options);
  };
  using world = makeHarness({ openFileLimit: limit, memoryBytes: bytes, openStore });
  const { stdout } = await (await world.serve()).stop();
  const lines = parsedLines(stdout).filter(({ level }) => level === "warn");
  expect(lines.map(({ reason }) => reason).sort()).toEqual(["the disk is old", ...warnings]);
});

test("serve fails when API_TOKEN is a token of the database, even a revoked one", async () => {
  using world = makeHarness();
  const token = await createToken(world, "shop", "--scope", "read");
  using server = makeHarness({ environment: { API_TOKEN: token, DATABASE_URL: world.path } });
  const why = 'it is the token "shop" of this database, and needs to be a separate one';
  const failure = failed(`Cannot use API_TOKEN: ${why}`);
  expect(await server.run("serve")).toEqual(failure);
  await world.run("token", "revoke", "shop");
  expect(await server.run("serve")).toEqual(failure);
});

test("a read-only server creates no token, and accepts those that commands create until they are revoked", async () => {
  using world = makeHarness({ environment: { READ_ONLY: "true" } });
  await fillDatabase(world.path, 1);
  const serving = await world.serve();
  const token = await createToken(world, "ci", "--scope", "read");
  expect((await get(serving, "/users", token)).status).toBe(200);
  const list = await world.run("token", "list");
  expect(list.stdout).toMatch(/^ci .* valid /m);
  expect(list.stdout).not.toContain("first");
  await world.run("token", "revoke", "ci");
  expect((await get(serving, "/users", token)).status).toBe(401);
  expect((await serving.stop()).stderr).toBe("");
});

test.each([
  ["0 when a signal arrives", 0, { by: "signal", signal: "SIGINT" }, "info"],
  ["1 when there is an uncaught error", 1, { by: "fault", error: new Error("a bug") }, "error"],
] as const)("serve closes everything and exits with %s", async (_, code, reason, level) => {
  using world = makeHarness({ environment: { HOST: "0.0.0.0" } });
  const serving = await world.serve();
  // The URL in the log can be opened.
  const { hostname, port } = new URL(serving.url);
  expect([hostname, (await get(serving, "/health")).status]).toEqual(["127.0.0.1", 200]);
  expect(await world.isFree()).toBe(false);
  using other = makeHarness();
  const outcome = await other.run("serve", "--port", port);
  expect(outcome).toEqual(
    failed(`Cannot listen on 127.0.0.1:${port}: the port is in use: set PORT to another one`),
  );
  expect(await other.isFree()).toBe(true);
  // Everything is closed before `stopped` is logged.
  const free = serving.printed(/"event":"stopped"/).then(() => world.isFree());
  const ended = await serving.stop(reason);
  expect([ended.code, await free]).toEqual([code, true]);
  if (code === 1) expect(ended.stderr).toEndWith("Unexpected error: a bug\n");
  const events = parsedLines(ended.stdout).filter(({ event }) => event !== "request");
  expect(events).toMatchObject([
    { event: "listening", host: "0.0.0.0", url: serving.url, database: world.path },
    { event: "stopping", level, ...(code === 0 ? { signal: "SIGINT" } : { reason: "a bug" }) },
    { event: "stopped" },
  ]);
  await expect(get(serving, "/health")).rejects.toThrow();
});

test("serve uses no database that it has closed for a request that was not completed in time", async () => {
  const [asked, closed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const openStore = openWith(({ tokens, close }) => {
    async function find(hash: string) {
      const token = await tokens.find(hash);
      asked.resolve();
      return closed.promise.then(() => token);
    }
    return { tokens: { ...tokens, find }, close: () => close().then(closed.resolve) };
  });
  using world = makeHarness({ environment: { SHUTDOWN_SECONDS: "0" }, openStore });
  const serving = await world.serve();
  const [token] = (await serving.printed(secret)).match(secret) ?? [];
  get(serving, "/users", token).catch(() => {});
  await asked.promise;
  await serving.stop();
  while (!serving.output().includes('"route":"/api/v1/users"')) await Bun.sleep(1);
  expect(serving.output()).not.toContain("internal error");
});

const tls = (cert: string, key: string) => ["--tls-cert", cert, "--tls-key", key];
const cert = join(import.meta.dir, "../fixtures/localhost.crt");
const withTls = tls(cert, cert.replace(".crt", ".key"));
const noFile = "no-such.pem: no such file or directory";
/** Flags with which it cannot listen, and the beginning of the line on stderr. */
const nowhere: [string[], string][] = [
  [["--host", "203.0.113.1"], "listen on 203.0.113.1:0: this machine does not have the address"],
  [["--host", "999.1.1.1", ...withTls], "listen on 999.1.1.1:0: unknown host\n"],
  [tls("no-such.pem", "no-such.pem"), `read TLS_CERT: ${noFile}\n`],
  [tls(import.meta.path, "no-such.pem"), `read TLS_KEY: ${noFile}\n`],
  [tls(import.meta.path, import.meta.path), "use TLS_CERT "],
  [tls("/dev/zero", "a"), "read TLS_CERT: /dev/zero: it is not a "],
];

test.each(nowhere)("serve %j frees the database when it cannot start", async (args, line) => {
  using world = makeHarness();
  const { code, stdout, stderr } = await world.run("serve", ...args);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toStartWith(`Cannot ${line}`);
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  expect(await world.isFree()).toBe(true);
});

const bucket = { ARCHIVE_URL: "s3://bucket/user-api" };
const noPair = "they are not a PEM certificate and its key";

/** Settings that are checked, and what stderr says; nothing if they are valid. */
const checkedSettings: [string[], Environment, string][] = [
  [[], {}, ""],
  [withTls, { ...bucket, S3_ACCESS_KEY_ID: "a", S3_SECRET_ACCESS_KEY: "b" }, ""],
  [[], { ...bucket, READ_ONLY: "true" }, ""],
  [[], { PORT: "abc" }, 'Invalid PORT "abc": must be an integer from 0 to 65535'],
  [tls(cert, cert), {}, `Cannot use TLS_CERT ${cert} and TLS_KEY ${cert}: ${noPair}`],
];

test("serve --check says whether the settings are valid, and neither listens nor creates a file", async () => {
  using busy = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  for (const [args, environment, line] of checkedSettings) {
    using world = makeHarness({ environment: { PORT: String(busy.port), ...environment } });
    const valid = { code: 0, stdout: "settings are valid\n", stderr: "" };
    const outcome = await world.run("serve", "--check", ...args);
    expect(outcome).toEqual(line === "" ? valid : failed(line));
    expect(existsSync(dirname(world.path))).toBe(false);
  }
});

/** Ends in 2126. */
const certificateEndMs = Date.parse("2126-10-27T22:56:50Z");
const DAY_MS = 86_400_000;

test("serve --check warns when a certificate expires within 21 days, and fails when it has, whatever follows it in its chain", async () => {
  using world = makeHarness();
  const check = async (beforeMs: number, ...args: string[]) => {
    world.clock.time = new Date(certificateEndMs - beforeMs);
    const { code, stderr } = await world.run("serve", "--check", ...withTls, ...args);
    return [code, stderr];
  };
  const end = "at 2126-10-27T22:56:50.000Z\n";
  expect(await check(21 * DAY_MS + 1)).toEqual([0, ""]);
  expect(await check(21 * DAY_MS)).toEqual([0, `TLS_CERT ${cert} expires ${end}`]);
  expect(await check(0)).toEqual([1, `TLS_CERT ${cert} expired ${end}`]);
  const chain = world.at("chain.crt");
  const expired = cert.replace("localhost", "expired");
  await Bun.write(chain, (await Bun.file(cert).text()) + (await Bun.file(expired).text()));
  expect(await check(22 * DAY_MS, "--tls-cert", chain)).toEqual([0, ""]);
});

test("serve logs that its certificate expires soon, and that it has expired, and exports when", async () => {
  const apiToken = newToken();
  using world = makeHarness({ environment: { API_TOKEN: apiToken } });
  world.clock.time = new Date(certificateEndMs - DAY_MS);
  const serving = await world.serve(...withTls);
  const fields = `"certificate":"${cert}","expires_at":"2126-10-27T22:56:50.000Z"`;
  expect(serving.output()).toContain(`"warn","event":"certificate expires soon",${fields}`);
  const text = await (await get(serving, "/metrics", apiToken)).text();
  const times = /^user_api_certificate_(?:start|expiry)_timestamp_seconds (.*)$/gm;
  expect([...text.matchAll(times)].map(([, time]) => time)).toEqual(["1795215410", "4948815410"]);
  world.clock.time = new Date(certificateEndMs);
  await serving.printed(/"level":"error","event":"certificate expired"/);
  await serving.stop();
});

// The client gives up after five seconds, which others of this process can use up.
inTurn(
  "health prints ok when the server is healthy, and exits with 1 when nothing responds, or not with TLS",
  async () => {
    using world = makeHarness();
    const serving = await world.serve();
    const { port } = new URL(serving.url);
    const health = (at: string | number | undefined, ...args: string[]) =>
      world.run("health", "--port", `${at}`, ...args);
    expect(await health(port)).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
    expect((await health(port, "--host", "0.0.0.0")).code).toBe(0);
    await serving.stop();
    const path = "/api/v1/health";
    const line = `Cannot connect to http://127.0.0.1:${port}${path}: connection refused`;
    expect(await health(port)).toEqual(failed(line));
    // The reason depends on whether the machine has IPv6.
    const withIpv6 = await health(port, "--host", "::");
    expect(withIpv6.stderr).toStartWith(`Cannot connect to http://127.0.0.1:${port}${path}: `);
    using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    expect((await health(silent.port)).stderr).toEndWith(": The operation timed out.\n");
    using plain = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    const tls = ["--tls-cert", "a.pem", "--tls-key", "a.key"];
    const why = "the server does not use TLS";
    expect(await health(plain.port, ...tls)).toEqual(
      failed(`Cannot connect to https://127.0.0.1:${plain.port}${path}: ${why}`),
    );
  },
);

test("health exits with 1, and the API returns 503, when the database cannot be written", async () => {
  const checkUsable = () => Promise.reject(new AppError("unavailable", "the disk is full"));
  using world = makeHarness({ openStore: openWith(() => ({ checkUsable })) });
  const serving = await world.serve();
  const response = await get(serving, "/health");
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "2"]);
  expect(await response.json()).toMatchObject({ error: "the disk is full" });
  const { port } = new URL(serving.url);
  expect(await world.run("health", "--port", port)).toEqual(
    failed(`${serving.url}/api/v1/health is unhealthy: status 503`),
  );
  await serving.stop();
});

test("serve passes to its archive only the variables of the storage, and stops with an error when the thread of the archive has stopped", async () => {
  let passed: unknown;
  let stopArchive = (_error: Error) => {};
  const storage = { S3_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" };
  using world = makeHarness({
    environment: { ...storage, ARCHIVE_URL: "s3://bucket", API_TOKEN: newToken() },
    openStore({ archive, ...options }) {
      if (archive !== undefined) stopArchive = archive.onStopped;
      passed ??= archive?.environment;
      return openSqlite(options);
    },
  });
  const server = await world.serve();
  expect(passed).toEqual(storage);
  stopArchive(new Error("the archive has stopped: a bug"));
  const { code, stderr } = await server.ended;
  expect(code).toBe(1);
  expect(stderr).toEndWith("Unexpected error: the archive has stopped: a bug\n");
});
