// A server with an archive in a directory: restarts, restores at the start, and storage that is away for a while.
import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { createDirectoryStorage } from "../../src/object-storage/directory.ts";
import { newToken } from "../../src/token.ts";
import { makeDirectory } from "../directory.ts";
import { sendCall } from "../http/server.ts";
import { binary, type Running, runBinary, startProgram } from "../program.ts";
import { addDamagedBase } from "../sqlite/archive/archived.ts";

const CLIENTS = 32;
const token = newToken();

function makePlace() {
  const directory = makeDirectory();
  const archive = directory.at("archive");
  mkdirSync(archive);
  const data = directory.at("data");
  const environment = {
    DATABASE_URL: `${data}/a.db`,
    ARCHIVE_URL: `file://${archive}`,
    API_TOKEN: token,
    PORT: "0",
  };
  const servers: Running[] = [];
  return {
    ...directory,
    archive,
    data,
    environment,
    startServer(settings: Readonly<Record<string, string>> = {}): Running {
      const server = startProgram([binary, "serve"], { env: { ...environment, ...settings } });
      servers.push(server);
      return server;
    },
    [Symbol.dispose]() {
      for (const server of servers) if (!server.hasExited()) server.kill("SIGKILL");
      directory[Symbol.dispose]();
    },
  };
}

/** @returns the URL of a server that has started */
async function urlOf(server: Running): Promise<string> {
  const url = await server.listening;
  if (url === null) throw new Error(server.output());
  return url;
}

/** Creates users until the server does not respond. */
async function writeUntilKilled(url: string): Promise<void> {
  const clients = Array.from({ length: CLIENTS }, async () => {
    for (;;) {
      try {
        const body = { email: `${crypto.randomUUID()}@b.cd`, metadata: { note: "x".repeat(500) } };
        await sendCall(url, token, "POST", "/users", { body });
      } catch {
        return;
      }
    }
  });
  await Promise.all(clients);
}

describe.skipIf(binary === "")("the archive", () => {
  test.concurrent("is free after a start that was refused", async () => {
    using place = makePlace();
    async function run(settings: Readonly<Record<string, string>> = {}): Promise<string> {
      const server = place.startServer(settings);
      if ((await server.listening) !== null) server.kill("SIGTERM");
      await server.ended;
      return server.output();
    }
    await run();
    const other = { DATABASE_URL: place.at("other.db") };
    await run({ ...other, ARCHIVE_URL: "" });
    expect(await run(other)).toContain("the archive belongs to another database");
    expect(await run()).not.toContain("waiting for the archive");
    // This start has the lease when the restore fails.
    const chunks = `${place.archive}/chunks`;
    renameSync(chunks, place.at("chunks"));
    const missing = { DATABASE_URL: place.at("missing.db"), ARCHIVE_RESTORE: "if-missing" };
    expect(await run(missing)).toContain("the archive is damaged: chunks/");
    expect(await run()).not.toContain("waiting for the archive");
  }, 60_000);

  test.concurrent("continues when the server was killed and started again", async () => {
    using place = makePlace();
    for (let start = 0; start < 3; start += 1) {
      const server = place.startServer({ ARCHIVE_COMMIT: "sync" });
      const writing = writeUntilKilled(await urlOf(server));
      await Bun.sleep(200);
      server.kill("SIGKILL");
      await server.ended;
      const continued = /"continued":(\w+)/.exec(server.output())?.[1];
      expect(continued).toBe(String(start > 0));
      await writing;
    }
    const checked = await runBinary(["archive", "check"], place.environment);
    expect([checked.code, checked.stderr]).toEqual([0, ""]);
    expect(checked.stdout).toMatch(/^Restored [\d,]+ users/);
  }, 60_000);

  test.concurrent("is restored at the start of a server only when that is permitted", async () => {
    using place = makePlace();
    const server = place.startServer();
    const url = await urlOf(server);
    const body = { email: "ann@example.com" };
    expect((await sendCall(url, token, "POST", "/users", { body })).status).toBe(201);
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
    rmSync(place.data, { recursive: true });

    const refused = await place.startServer().ended;
    expect([refused.code, refused.stderr]).toEqual([
      1,
      `ARCHIVE_URL: it has a database, but ${place.environment.DATABASE_URL} is missing: run \`user-api restore --from ${place.environment.ARCHIVE_URL}\`, or set ARCHIVE_RESTORE=if-missing\n`,
    ]);
    const next = place.startServer({ ARCHIVE_RESTORE: "if-missing" });
    const found = await sendCall(
      await urlOf(next),
      token,
      "GET",
      "/users?email=ann@example.com",
      {},
    );
    expect(found.json.meta.total).toBe(1);
    expect(next.output()).toContain('"continued":true');
    next.kill("SIGTERM");
    await next.ended;
  }, 30_000);

  test.concurrent("is restored, with a warning, when its newest base is damaged", async () => {
    using place = makePlace();
    const server = place.startServer({ ARCHIVE_COMMIT: "sync" });
    const body = { email: "ann@example.com" };
    await sendCall(await urlOf(server), token, "POST", "/users", { body });
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
    rmSync(place.data, { recursive: true });
    const storage = createDirectoryStorage({ path: place.archive, timeoutMs: 30_000 });
    const warning = await addDamagedBase(storage);

    const checked = await runBinary(["archive", "check"], place.environment);
    expect([checked.code, checked.stderr]).toEqual([
      1,
      `The archive needs attention: ${warning}\n`,
    ]);
    expect(checked.stdout).toMatch(/^Restored 1 user,/);
    const next = place.startServer({ ARCHIVE_RESTORE: "if-missing" });
    const path = "/users?email=ann@example.com";
    const found = await sendCall(await urlOf(next), token, "GET", path, {});
    expect(found.json.meta.total).toBe(1);
    expect(next.output()).toContain(`"reason":"${warning}"`);
    expect(next.output()).toContain('"continued":true');
    next.kill("SIGTERM");
    await next.ended;
  }, 30_000);

  test.concurrent.each(["to a database", "to a file that does not exist yet"])(
    "is written when the database is a symbolic link %s",
    async (target) => {
      using place = makePlace();
      mkdirSync(place.data);
      const link = place.at("link.db");
      symlinkSync(place.environment.DATABASE_URL, link);
      if (target === "to a database") {
        const first = place.startServer({ ARCHIVE_URL: "" });
        await urlOf(first);
        first.kill("SIGTERM");
        await first.ended;
      }
      for (let start = 0; start < 2; start += 1) {
        const server = place.startServer({ DATABASE_URL: link, ARCHIVE_COMMIT: "sync" });
        const body = { email: `${start}@example.com` };
        const created = await sendCall(await urlOf(server), token, "POST", "/users", { body });
        expect(created.status).toBe(201);
        server.kill("SIGTERM");
        expect((await server.ended).code).toBe(0);
        expect(server.output()).toContain(`"continued":${start > 0}`);
      }
      expect(existsSync(`${place.environment.DATABASE_URL}-archive`)).toBeTrue();
      const checked = await runBinary(["archive", "check"], place.environment);
      expect(checked.stdout).toMatch(/^Restored 2 users/);
    },
    30_000,
  );

  test.concurrent("rejects writes in sync mode while its storage is away, and recovers", async () => {
    using place = makePlace();
    const server = place.startServer({ ARCHIVE_COMMIT: "sync" });
    const url = await urlOf(server);
    const create = (headers: Record<string, string> = {}, email = `${crypto.randomUUID()}@b.cd`) =>
      sendCall(url, token, "POST", "/users", { body: { email }, headers });
    expect((await create()).status).toBe(201);
    renameSync(place.archive, place.at("away"));
    const key = { "Idempotency-Key": "a" };
    const late = await create(key, "late@example.com");
    expect([late.status, late.headers.get("retry-after")]).toEqual([503, "1"]);
    const rejected = await create();
    expect([rejected.status, rejected.json.error]).toEqual([503, "the archive does not respond"]);
    expect((await sendCall(url, token, "GET", "/users", {})).status).toBe(200);
    expect((await sendCall(url, token, "GET", "/health", {})).status).toBe(503);
    renameSync(place.at("away"), place.archive);
    while ((await create(key, "late@example.com")).status !== 201) await Bun.sleep(50);
    const found = await sendCall(url, token, "GET", "/users?email=late@example.com", {});
    expect(found.json.meta.total).toBe(1);
    server.kill("SIGKILL");
    await server.ended;
    rmSync(place.data, { recursive: true });
    const restored = await runBinary(
      ["restore", "--from", place.environment.ARCHIVE_URL],
      place.environment,
    );
    expect(restored.stdout).toMatch(/^Restored 2 users/);
  }, 60_000);
});
