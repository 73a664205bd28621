// The image in containers, run by `make image-test`: it must need only its volume and little memory, and report what is
// missing.
import { afterAll, expect, test } from "bun:test";
import { chmodSync } from "node:fs";
import manifest from "../../package.json" with { type: "json" };
import { newEmail, newUser } from "../http/make.ts";
import { openMany, rawRequest } from "../http/raw.ts";
import type { TestResponse } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Container, MEMORY_LIMIT_BYTES, openPodman } from "./podman.ts";
import { anonymousMemory, highestMemory, rightsOf } from "./process.ts";

const archive = Bun.env["TEST_IMAGE"] ?? "";
const againstImage = archive !== "";

/** Limits in MB (10^6 bytes), uncompressed and compressed. */
const [LARGEST_RAW_MB, LARGEST_GZIP_MB] = [123, 58];
/** Default of `docker stop`. */
const DOCKER_GRACE_S = 10;
/** Writes per second, and the duration in seconds. */
const [LOAD_RATE, LOAD_S] = [200, 5];
const NOBODY = 65_532;

const podman = againstImage ? await openPodman(archive) : (null as never);
afterAll(() => podman?.[Symbol.asyncDispose]());

function testImage(name: string, work: () => Promise<void>): void {
  test.skipIf(!againstImage)(name, work, 60_000);
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

testImage(
  "the server has no privileges, can write only to its volume, and stops cleanly; HEALTHCHECK fails while it hangs",
  async () => {
    await using server = await podman.serve({ volume: "rights" });
    expect((await newUser(server)).id).toBe(1);
    expect(rightsOf(server.pid)).toEqual({
      user: NOBODY,
      group: NOBODY,
      capabilities: 0n,
      noNewPrivileges: true,
      filteredCalls: true,
      writable: ["/data"],
    });
    expect(await server.checkHealth()).toBe(0);
    expect(await server.inspect("{{.State.Health.Status}}")).toBe("healthy");
    process.kill(server.pid, "SIGSTOP");
    expect(await server.checkHealth()).toBe(1);
    process.kill(server.pid, "SIGCONT");
    expect(await server.checkHealth()).toBe(0);
    expect(await server.stop(DOCKER_GRACE_S)).toBe(0);
  },
);

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
  for (let made = 0; made < LARGE_USERS; made += 20)
    await Promise.all(Array.from({ length: 20 }, () => newUser(server, { metadata })));
}

for (const [alphabet, metadata] of Object.entries(largeMetadata)) {
  testImage(
    `the server stays within 128 MiB when many clients read the largest pages of ${alphabet}, or stop reading`,
    async () => {
      await using server = await podman.serve({ settings: { LOG_LEVEL: "warn" } });
      await createLargeUsers(server, metadata);
      const { json } = await server.call("GET", "/users?limit=1000");
      const path = `/users?limit=${/at most (\d+) here/.exec(json.error)?.[1]}`;
      const request = { token: server.writeToken, keepAlive: true };
      const bytes = rawRequest("GET", `/api/v1${path}`, request);
      using _stalled = await openMany(server, bytes, STALLED_READERS);
      const endMs = performance.now() + READING_MS;
      const statuses = new Set<number>();
      const readers = Array.from({ length: PAGE_READERS }, async () => {
        const headers = { authorization: `Bearer ${server.writeToken}` };
        while (performance.now() < endMs) {
          const response = await fetch(`${server.url}/api/v1${path}`, { headers });
          await response.arrayBuffer();
          statuses.add(response.status);
        }
      });
      let memoryBytes = 0;
      while (performance.now() < endMs) {
        expect((await server.call("GET", "/health", { token: null })).status).toBe(200);
        memoryBytes = Math.max(memoryBytes, anonymousMemory(server.pid));
        await Bun.sleep(20);
      }
      await Promise.all(readers);
      expect([200, 503]).toEqual(expect.arrayContaining([...statuses]));
      console.log(`${alphabet}: at most ${Math.round(memoryBytes / 2 ** 20)} MiB`);
      expect(memoryBytes).toBeLessThan(MEMORY_LIMIT_BYTES);
      expect((await server.call("GET", "/users?limit=2")).status).toBe(200);
    },
  );
}

testImage("the server rejects no write under load, with little memory", async () => {
  await using server = await podman.serve({});
  const loaded = load(server);
  // The check runs in the same container and uses the same memory.
  expect(await server.checkHealth()).toBe(0);
  const responses = await loaded;
  expect(responses.map(({ status }) => status)).toEqual(responses.map(() => 201));
  expect(new Set(responses.map(({ json }) => json.data.id)).size).toBe(LOAD_RATE * LOAD_S);
  expect(highestMemory(server.pid)).toBeLessThan(MEMORY_LIMIT_BYTES);
});

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
