// The image in containers, run by `make image-test`: it must need only its volume, lose no data, and report what is
// missing.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync } from "node:fs";
import { connect, type Socket } from "node:net";
import manifest from "../../package.json" with { type: "json" };
import { newToken } from "../../src/domain/token.ts";
import { newEmail, newUser } from "../http/make.ts";
import { rawRequest } from "../http/raw.ts";
import type { TestResponse } from "../http/server.ts";
import { startS3Server } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Container, MEMORY_LIMIT_BYTES, openPodman, type Podman } from "./podman.ts";
import { anonymousMemory, highestMemory, memoryLimit, outOfMemory, rightsOf } from "./process.ts";

const archive = Bun.env["TEST_IMAGE"] ?? "";
const againstImage = archive !== "";

/** Limits in MB (10^6 bytes), uncompressed and compressed. */
const [LARGEST_RAW_MB, LARGEST_GZIP_MB] = [122, 57];
/** Default of `docker stop`. */
const DOCKER_GRACE_S = 10;
/** Writes per second, and the duration in seconds. */
const [LOAD_RATE, LOAD_S] = [200, 5];
const NOBODY = 65_532;

let podman: Podman;
if (againstImage) {
  beforeAll(async () => {
    podman = await openPodman(archive);
  }, 60_000);
  afterAll(() => podman?.[Symbol.asyncDispose]());
}

const TIMEOUT_MS = 60_000;
function testImage(name: string, work: () => Promise<void>): void {
  test.skipIf(!againstImage)(name, work, TIMEOUT_MS);
}

function serve(volume: string, settings: Record<string, string> = {}): Promise<Container> {
  const token = newToken();
  return podman.serve(token, { volume, settings: { API_TOKEN: token, ...settings } });
}

// The tests build only the last stage of the Dockerfile, which does not use this version.
test("Dockerfile uses the Bun that package.json pins", async () => {
  const dockerfile = await Bun.file(`${import.meta.dir}/../../Dockerfile`).text();
  expect(dockerfile).toContain(
    `\nARG BUN_IMAGE=oven/${manifest.packageManager.replace("@", ":")}\n`,
  );
});

testImage("the image is small, uncompressed and compressed", async () => {
  let gzipBytes = 0;
  // Bun's own gzip compresses 2 % less.
  const gzip = Bun.spawn(["gzip", "-c", archive], { stdout: "pipe" });
  for await (const chunk of gzip.stdout) gzipBytes += chunk.length;
  const { Size: rawBytes } = await podman.inspectImage();
  const [rawMB, gzipMB] = [rawBytes / 1e6, gzipBytes / 1e6];
  console.log(`The image is ${rawMB.toFixed(1)} MB raw, ${gzipMB.toFixed(1)} MB with gzip`);
  expect(rawMB).toBeWithin(50, LARGEST_RAW_MB);
  expect(gzipMB).toBeWithin(20, LARGEST_GZIP_MB);
});

testImage("the image has labels, a user, a volume and a port", async () => {
  const { Config, Labels, Healthcheck } = await podman.inspectImage();
  expect(Config).toMatchObject({
    User: `${NOBODY}:${NOBODY}`,
    Entrypoint: ["user-api"],
    Cmd: ["serve"],
    Volumes: { "/data": {} },
    ExposedPorts: { "3000/tcp": {} },
    StopSignal: "SIGTERM",
  });
  expect(Healthcheck.Test).toEqual(["CMD", "user-api", "health"]);
  const label = (name: string): string => Labels[`org.opencontainers.image.${name}`];
  expect([label("title"), label("licenses")]).toEqual(["user-api", "MIT"]);
  const { stdout } = await podman.run({ args: ["version"] });
  expect(stdout).toStartWith(`${label("version")} (commit ${label("revision")}; `);
  const committedAt = (await Bun.$`git log -1 --format=%cI`.text()).trim();
  expect(new Date(label("created"))).toEqual(new Date(committedAt));
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: repository } = Bun.env;
  expect(label("source")).toBe(repository === undefined ? "unknown" : `${server}/${repository}`);
  // Otherwise Docker would kill the server before it aborts unfinished requests.
  const shutdown = Config.Env.find((line: string) => line.startsWith("SHUTDOWN_SECONDS="));
  expect(Number(shutdown?.split("=")[1])).toBeWithin(1, DOCKER_GRACE_S);
});

testImage("the server has no privileges, and can write only to its volume", async () => {
  await using server = await serve("rights");
  expect((await newUser(server)).id).toBe(1);
  expect(rightsOf(server.pid)).toEqual({
    user: NOBODY,
    group: NOBODY,
    capabilities: 0n,
    noNewPrivileges: true,
    filteredCalls: true,
    writable: ["/data"],
  });
});

testImage(
  "HEALTHCHECK passes for a server that responds, and fails for one that hangs",
  async () => {
    await using server = await serve("health");
    expect(await server.checkHealth()).toBe(0);
    expect(await server.inspect("{{.State.Health.Status}}")).toBe("healthy");
    process.kill(server.pid, "SIGSTOP");
    expect(await server.checkHealth()).toBe(1);
    process.kill(server.pid, "SIGCONT");
    expect(await server.checkHealth()).toBe(0);
  },
);

testImage("records and tokens are kept when another container uses the same volume", async () => {
  const volume = "kept";
  const made = await podman.run({ volume, args: ["token", "create", "first-client"] });
  expect([made.code, made.stderr]).toEqual([
    0,
    expect.stringContaining("It will not be shown again"),
  ]);
  const token = made.stdout.trim();
  let text = "";
  {
    await using first = await podman.serve(token, { volume });
    await newUser(first, { name: "Ünïcode 😀" });
    ({ text } = await first.call("GET", "/users/1"));
    // In another container, while the server is running.
    const other = await podman.run({ volume, args: ["token", "create", "other"] });
    const response = await first.call("GET", "/users/1", { token: other.stdout.trim() });
    expect([response.status, response.text]).toEqual([200, text]);
    expect(await first.stop(DOCKER_GRACE_S)).toBe(0);
  }
  await using second = await podman.serve(token, { volume });
  const response = await second.call("GET", "/users/1");
  expect([response.status, response.text]).toEqual([200, text]);
});

/** Sends writes at the rate without waiting for responses. @returns the responses */
async function load(server: Container) {
  const startedMs = performance.now();
  const writes: Promise<TestResponse>[] = [];
  while (writes.length < LOAD_RATE * LOAD_S) {
    const body = { email: newEmail(), metadata: { filler: "x".repeat(200) } };
    writes.push(server.call("POST", "/users", { body }));
    const dueMs = startedMs + (writes.length / LOAD_RATE) * 1000;
    await Bun.sleep(Math.max(0, dueMs - performance.now()));
  }
  return Promise.all(writes);
}

/** The largest records: 27 kB of ASCII, or 63 kB with 21,000 non-ASCII characters. */
const largeMetadata: Record<string, Record<string, string>> = {
  ASCII: Object.fromEntries(
    Array.from({ length: 50 }, (_, at) => [`field-${at}`.padEnd(40, "-"), "x".repeat(500)]),
  ),
  CJK: Object.fromEntries(Array.from({ length: 42 }, (_, at) => [`field-${at}`, "漢".repeat(500)])),
};
const LARGE_USERS = 1000;
const [PAGE_READERS, STALLED_READERS] = [12, 20];
const READING_MS = 5_000;

async function createLargeUsers(server: Container, metadata: Record<string, string>) {
  for (let made = 0; made < LARGE_USERS; made += 20) {
    const create = () => server.call("POST", "/users", { body: { email: newEmail(), metadata } });
    for (const { status } of await Promise.all(Array.from({ length: 20 }, create))) {
      expect(status).toBe(201);
    }
  }
}

function stall(server: Container, path: string): Socket {
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  socket.pause();
  socket.on("error", () => {});
  const request = { token: server.writeToken, keepAlive: true };
  socket.write(rawRequest("GET", `/api/v1${path}`, request));
  return socket;
}

for (const [alphabet, metadata] of Object.entries(largeMetadata)) {
  testImage(
    `the server stays within 128 MiB when many clients read the largest pages of ${alphabet}, or stop reading`,
    async () => {
      await using server = await serve(`large-${alphabet.toLowerCase()}`, { LOG_LEVEL: "warn" });
      await createLargeUsers(server, metadata);
      const { json } = await server.call("GET", "/users?limit=1000");
      const path = `/users?limit=${/at most (\d+) here/.exec(json.error)?.[1]}`;
      const stalled = Array.from({ length: STALLED_READERS }, () => stall(server, path));
      const endMs = performance.now() + READING_MS;
      const statuses: Record<number, number> = {};
      const readers = Array.from({ length: PAGE_READERS }, async () => {
        const headers = { authorization: `Bearer ${server.writeToken}` };
        while (performance.now() < endMs) {
          const response = await fetch(`${server.url}/api/v1${path}`, { headers });
          await response.arrayBuffer();
          statuses[response.status] = (statuses[response.status] ?? 0) + 1;
        }
      });
      const waitsMs: number[] = [];
      let memoryBytes = 0;
      while (performance.now() < endMs) {
        const startedMs = performance.now();
        expect((await server.call("GET", "/health", { token: null })).status).toBe(200);
        waitsMs.push(performance.now() - startedMs);
        memoryBytes = Math.max(memoryBytes, anonymousMemory(server.pid));
        await Bun.sleep(20);
      }
      await Promise.all(readers);
      for (const socket of stalled) socket.destroy();
      expect(Object.keys(statuses).filter((status) => !["200", "503"].includes(status))).toEqual(
        [],
      );
      waitsMs.sort((one, other) => one - other);
      const p99Ms = waitsMs[Math.floor(waitsMs.length * 0.99)]?.toFixed(0);
      const mebibytes = (memoryBytes / 2 ** 20).toFixed(0);
      const counts = JSON.stringify(statuses);
      console.log(`${alphabet}: at most ${mebibytes} MiB, p99 of /health ${p99Ms} ms, ${counts}`);
      expect(memoryBytes).toBeLessThan(MEMORY_LIMIT_BYTES);
      if (podman.limitsMemory) expect(outOfMemory(server.pid)).toBe(0);
      expect((await server.call("GET", "/users?limit=2")).status).toBe(200);
    },
  );
}

testImage(
  "a container without a volume rejects no write under load, and one on another machine has all of them when it was killed",
  async () => {
    await using storage = await startS3Server();
    const token = newToken();
    const settings = {
      ...storage.environment,
      API_TOKEN: token,
      ARCHIVE_URL: "s3://bucket/user-api",
      ARCHIVE_COMMIT: "sync",
      ARCHIVE_RESTORE: "if-missing",
    };
    let ids: number[] = [];
    {
      await using first = await podman.serve(token, { settings });
      const loaded = load(first);
      // The check runs in the same container and uses the same memory.
      expect(await first.checkHealth()).toBe(0);
      const responses = await loaded;
      expect(responses.map(({ status }) => status)).toEqual(responses.map(() => 201));
      ids = responses.map(({ json }) => json.data.id).sort((one, other) => one - other);
      expect(new Set(ids).size).toBe(LOAD_RATE * LOAD_S);
      expect(highestMemory(first.pid)).toBeLessThan(MEMORY_LIMIT_BYTES);
      if (podman.limitsMemory) {
        expect(memoryLimit(first.pid)).toBe(MEMORY_LIMIT_BYTES);
        expect(outOfMemory(first.pid)).toBe(0);
      }
      // Removed without a stop, and with its volume.
    }
    await using second = await podman.serve(token, { settings });
    const { json } = await second.call("GET", "/users?limit=1000");
    expect(json.data.map((user: { id: number }) => user.id)).toEqual(ids);
    expect((await newUser(second)).id).toBe(ids.length + 1);
    if (podman.limitsMemory) expect(outOfMemory(second.pid)).toBe(0);
  },
);

testImage(
  "serve exits with 1 and one error line when the volume belongs to another user",
  async () => {
    using directory = makeDirectory();
    chmodSync(directory.path, 0o755);
    expect(await podman.run({ volume: directory.path })).toEqual({
      code: 1,
      stdout: "",
      stderr:
        "Cannot open /data/user-api.db: cannot open or create the file: check the directory and its permissions\n",
    });
  },
);
