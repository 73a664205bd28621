import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { AppError } from "../../src/base/error.ts";
import type { Environment } from "../../src/base/secret.ts";
import { newToken } from "../../src/domain/token.ts";
import { openSqlite } from "../../src/sqlite/backend.ts";
import { fillDatabase } from "../support/fill.ts";
import { createToken, failed, makeHarness, parsedLines, type Serving } from "./harness.ts";

const CURL = /^ {2}curl -H '(?<field>[\w-]+): (?<value>[^']+)' (?<url>\S+)$/m;

async function curl(serving: Serving): Promise<Response> {
  const { field = "", value = "", url = "" } = CURL.exec(await serving.printed(CURL))?.groups ?? {};
  return fetch(url, { headers: { [field]: value } });
}

function get({ url }: Serving, path: string, token?: string): Promise<Response> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  return fetch(`${url}/api/v1${path}`, { headers });
}

const secret = /uat_[0-9A-Za-z]{36}/g;

test("serve logs a URL that can be opened when it listens on all addresses", async () => {
  using world = makeHarness({ environment: { HOST: "0.0.0.0" } });
  const server = await world.serve();
  expect(server.url).toStartWith("http://127.0.0.1:");
  expect((await fetch(`${server.url}/api/v1/health`)).status).toBe(200);
  expect((await server.stop()).stdout).toContain('"host":"0.0.0.0"');
});

test("serve prints the first token to stderr, with a working curl line, on the first start", async () => {
  using world = makeHarness();
  const first = await world.serve();
  const response = await curl(first);
  expect(response.status).toBe(200);
  expect(await response.json()).toEqual({
    data: [],
    error: null,
    meta: { total: 0, limit: 50, offset: 0 },
  });
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
  const again = await second.stop();
  expect(again.stderr).toBe("");
});

function warningsOf(stdout: string): unknown[] {
  const warnings = parsedLines(stdout).filter(({ level }) => level === "warn");
  return warnings.map(({ reason }) => reason);
}

const limitIs = (limit: number) => `the limit of open files is ${limit}`;

test.each([
  [4095, 2 ** 40, [`${limitIs(4095)}: raise it to 4096 or more`]],
  [4096, 2 ** 40, []],
  [2048, 2 ** 27, []],
  [2047, 2 ** 27, [`${limitIs(2047)}: raise it to 2048 or more`]],
  // The system did not lower it.
  [2049, 2 ** 27, [`${limitIs(2049)}: lower it to 2048, for which the memory is enough`]],
])(
  "serve warns when %i files can be open with %i bytes of memory, unless that fits",
  async (openFileLimit, memoryBytes, warnings) => {
    using world = makeHarness({ openFileLimit, memoryBytes });
    expect(warningsOf((await (await world.serve()).stop()).stdout)).toEqual(warnings);
  },
);

test("a read-only server creates no token, and commands write nevertheless", async () => {
  using world = makeHarness({ environment: { READ_ONLY: "true" } });
  await fillDatabase(world.path, 1);
  const serving = await world.serve();
  expect((await world.run("token", "list")).stdout).not.toContain("first");
  expect(await world.run("token", "create", "laptop")).toMatchObject({ code: 0 });
  expect((await serving.stop()).stderr).toBe("");
});

test("serve logs the warnings of the database", async () => {
  using world = makeHarness({
    openStore(options) {
      options.onWarning?.("the disk is old");
      return openSqlite(options);
    },
  });
  const { stdout } = await (await world.serve()).stop();
  expect(warningsOf(stdout)).toEqual(["the disk is old"]);
});

test("serve prints no token when one was created before", async () => {
  using world = makeHarness();
  const token = await createToken(world, "mine");
  const serving = await world.serve();
  expect((await get(serving, "/users", token)).status).toBe(200);
  expect((await serving.stop()).stderr).toBe("");
  // Nor when all are revoked: an operator who does that wants no new one.
  await world.run("token", "revoke", "mine");
  const next = await world.serve();
  expect((await get(next, "/users", token)).status).toBe(401);
  expect((await next.stop()).stderr).toBe("");
});

test("serve fails when API_TOKEN is a token of the database, even a revoked one", async () => {
  using world = makeHarness();
  const token = await createToken(world, "shop", "--scope", "read");
  const environment = { API_TOKEN: token, DATABASE_URL: world.path };
  using server = makeHarness({ environment });
  const failure = {
    code: 1,
    stderr:
      'Cannot use API_TOKEN: it is the token "shop" of this database, and needs to be a separate one\n',
  };
  expect(await server.run("serve")).toMatchObject(failure);
  await world.run("token", "revoke", "shop");
  expect(await server.run("serve")).toMatchObject(failure);
});

test("serve applies changes immediately when a token is created or revoked while it is running", async () => {
  using world = makeHarness();
  const serving = await world.serve();
  const token = await createToken(world, "ci", "--scope", "read");
  expect((await get(serving, "/users", token)).status).toBe(200);
  const list = await world.run("token", "list");
  expect(list.stdout).toMatch(/^first .* valid /m);
  await world.run("token", "revoke", "ci");
  expect((await get(serving, "/users", token)).status).toBe(401);
  const short = await createToken(world, "short", "--expires", "1m");
  expect((await get(serving, "/users", short)).status).toBe(200);
  world.clock.time = new Date(world.clock.time.getTime() + 60_000);
  expect((await get(serving, "/users", short)).status).toBe(401);
  await serving.stop();
});

test("serve closes the port, frees the database and exits with 0 when a signal arrives", async () => {
  using world = makeHarness();
  const serving = await world.serve();
  expect(await world.isFree()).toBe(false);
  // Everything is closed before `stopped` is logged.
  const free = serving.printed(/"event":"stopped"/).then(() => world.isFree());
  const { code, stdout } = await serving.stop({ by: "signal", signal: "SIGINT" });
  expect([code, await free]).toEqual([0, true]);
  const events = parsedLines(stdout);
  expect(events.map(({ event }) => event)).toEqual(["listening", "stopping", "stopped"]);
  expect(events[0]).toMatchObject({ url: serving.url, database: world.path });
  expect(events[1]).toMatchObject({ level: "info", signal: "SIGINT" });
  await expect(get(serving, "/health")).rejects.toThrow();
  expect(await world.isFree()).toBe(true);
});

for (const error of [new Error("a bug"), null]) {
  test(`serve closes everything and exits with 1 when the uncaught error is ${error}`, async () => {
    using world = makeHarness();
    const serving = await world.serve();
    const { code, stdout, stderr } = await serving.stop({ by: "fault", error });
    expect(code).toBe(1);
    const reason = error instanceof Error ? error.message : String(error);
    expect(stderr).toEndWith(`Unexpected error: ${reason}\n`);
    expect(parsedLines(stdout).slice(-2)).toMatchObject([
      { level: "error", event: "stopping", reason },
      { event: "stopped" },
    ]);
    await expect(get(serving, "/health")).rejects.toThrow();
    expect(await world.isFree()).toBe(true);
  });
}

test("serve names the port and frees the database when another server listens on the port", async () => {
  using world = makeHarness();
  using other = makeHarness();
  const serving = await other.serve();
  const { port } = new URL(serving.url);
  const outcome = await world.run("serve", "--port", port);
  expect(outcome).toEqual(failed(`Cannot listen on 127.0.0.1:${port}: the port is in use`));
  expect(await world.isFree()).toBe(true);
  await serving.stop();
});

const withTls = ["cert", "key"].flatMap((kind) => [
  `--tls-${kind}`,
  join(import.meta.dir, `../fixtures/localhost.${kind === "cert" ? "crt" : "key"}`),
]);

/** Flags with which it cannot listen, and the beginning of the line on stderr. */
const nowhere: [string[], string][] = [
  [
    ["--host", "203.0.113.1"],
    "Cannot listen on 203.0.113.1:0: this machine does not have the address",
  ],
  [["--host", "localhostx"], "Cannot listen on localhostx:0: unknown host\n"],
  [["--host", "999.1.1.1", ...withTls], "Cannot listen on 999.1.1.1:0: unknown host\n"],
  [
    ["--tls-cert", "no-such.pem", "--tls-key", "no-such.pem"],
    "Cannot read TLS_CERT: no-such.pem: no such file or directory\n",
  ],
  [
    ["--tls-cert", import.meta.path, "--tls-key", "no-such.pem"],
    "Cannot read TLS_KEY: no-such.pem: no such file or directory\n",
  ],
  [["--tls-cert", import.meta.path, "--tls-key", import.meta.path], "Cannot use TLS_CERT "],
  [["--tls-cert", "/dev/zero", "--tls-key", "a"], "Cannot read TLS_CERT: /dev/zero: it is not a "],
];

for (const [args, line] of nowhere) {
  test(`serve frees the database when it cannot start: ${line}`, async () => {
    using world = makeHarness();
    const { code, stdout, stderr } = await world.run("serve", ...args);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toStartWith(line);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(await world.isFree()).toBe(true);
  });
}

const [, cert = ""] = withTls;
const keys = { S3_ACCESS_KEY_ID: "a", S3_SECRET_ACCESS_KEY: "b" };
const bucket = { ARCHIVE_URL: "s3://bucket/user-api" };

/** Settings that are checked, and what stderr says; nothing if they are valid. */
const checkedSettings: [string[], Environment, string][] = [
  [[], {}, ""],
  [withTls, { ...bucket, ...keys }, ""],
  [[], { ...bucket, READ_ONLY: "true" }, ""],
  [[], { PORT: "abc" }, 'Invalid PORT "abc": must be an integer from 0 to 65535'],
  [
    ["--tls-cert", cert, "--tls-key", cert],
    {},
    `Cannot use TLS_CERT ${cert} and TLS_KEY ${cert}: they are not a PEM certificate and its key`,
  ],
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
  const options = {
    headers: { authorization: `Bearer ${apiToken}` },
    tls: { rejectUnauthorized: false },
  };
  const text = await (await fetch(`${serving.url}/api/v1/metrics`, options)).text();
  const times = /^user_api_certificate_(?:start|expiry)_timestamp_seconds (.*)$/gm;
  expect([...text.matchAll(times)].map(([, time]) => time)).toEqual(["1795215410", "4948815410"]);
  world.clock.time = new Date(certificateEndMs);
  await serving.printed(/"level":"error","event":"certificate expired"/);
  await serving.stop();
});

test("health prints ok when the server is healthy", async () => {
  using world = makeHarness();
  const serving = await world.serve();
  const { port } = new URL(serving.url);
  const outcome = await world.run("health", "--port", port);
  expect(outcome).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  const anywhere = await world.run("health", "--port", port, "--host", "0.0.0.0");
  expect(anywhere.code).toBe(0);
  await serving.stop();
  const { code, stdout, stderr } = await world.run("health", "--port", port);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toBe(
    `Cannot connect to http://127.0.0.1:${port}/api/v1/health: connection refused\n`,
  );
  // The reason depends on whether the machine has IPv6.
  const withIpv6 = await world.run("health", "--port", port, "--host", "::");
  expect(withIpv6.stderr).toStartWith(`Cannot connect to http://127.0.0.1:${port}/api/v1/health: `);
});

test("health exits with 1 when nothing responds in time, or not with TLS", async () => {
  using world = makeHarness();
  using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { stderr } = await world.run("health", "--port", String(silent.port));
  expect(stderr).toEndWith(": The operation timed out.\n");
  using plain = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
  const tls = ["--tls-cert", "a.pem", "--tls-key", "a.key"];
  const other = await world.run("health", "--port", String(plain.port), ...tls);
  expect(other.stderr).toBe(
    `Cannot connect to https://127.0.0.1:${plain.port}/api/v1/health: the server does not use TLS\n`,
  );
});

test("health exits with 1, and the API returns 503, when the database cannot be written", async () => {
  using world = makeHarness({
    openStore: async (options) => ({
      ...(await openSqlite(options)),
      checkUsable: () => Promise.reject(new AppError("unavailable", "the disk is full")),
    }),
  });
  const serving = await world.serve();
  const response = await get(serving, "/health");
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "2"]);
  expect(await response.json()).toEqual({
    data: null,
    error: "the disk is full",
    meta: { code: "unavailable" },
  });
  const { port } = new URL(serving.url);
  expect(await world.run("health", "--port", port)).toEqual(
    failed(`${serving.url}/api/v1/health is unhealthy: status 503`),
  );
  await serving.stop();
});

test("serve passes to its archive only the variables of the storage", async () => {
  let passed: unknown;
  using world = makeHarness({
    environment: {
      ARCHIVE_URL: "s3://bucket",
      API_TOKEN: newToken(),
      S3_ACCESS_KEY_ID: "id",
      AWS_SECRET_ACCESS_KEY: "secret",
    },
    async openStore({ archive }) {
      passed = archive?.environment;
      throw new AppError("operator", "enough");
    },
  });
  expect((await world.run("serve")).code).toBe(1);
  expect(passed).toEqual({ S3_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" });
});

test("serve stops with an error when the thread of its archive has stopped", async () => {
  let stopArchive = (_error: Error) => {};
  using world = makeHarness({
    environment: { ARCHIVE_URL: "file:///archive" },
    openStore({ archive, ...options }) {
      if (archive !== undefined) stopArchive = archive.onStopped;
      return openSqlite(options);
    },
  });
  const server = await world.serve();
  stopArchive(new Error("the archive has stopped: a bug"));
  const { code, stderr } = await server.ended;
  expect(code).toBe(1);
  expect(stderr).toEndWith("\nUnexpected error: the archive has stopped: a bug\n");
});
