// Kills the server while clients write, deletes its data, and restores the archive elsewhere. What it has must be a
// prefix of the commits; in sync mode, everything that was acknowledged.
import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { newToken } from "../../src/token.ts";
import { makeDirectory } from "../directory.ts";
import { sendCall } from "../http/server.ts";
import { binary, type Running, runBinary, startProgram } from "../program.ts";

/** `ARCHIVE_ROUNDS` for a longer run. */
const ROUNDS = Number(Bun.env["ARCHIVE_ROUNDS"] ?? 2);
const CLIENTS = 32;
/** An archive in async mode has something after one second. */
const [MIN_ROUND_MS, MAX_ROUND_MS] = [1_200, 1_500];
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

/** Creates users until the server does not respond. @returns the acknowledged ids, in the order of the responses */
async function writeUntilKilled(url: string): Promise<number[]> {
  const ids: number[] = [];
  const clients = Array.from({ length: CLIENTS }, async () => {
    for (;;) {
      try {
        const body = { email: `${crypto.randomUUID()}@b.cd`, metadata: { note: "x".repeat(500) } };
        const { status, json } = await sendCall(url, token, "POST", "/users", { body });
        if (status === 201) ids.push(json.data.id);
      } catch {
        return;
      }
    }
  });
  await Promise.all(clients);
  return ids;
}

function idsIn(path: string): number[] {
  using db = new Database(path, { readonly: true });
  const rows = db.prepare<{ id: number }, []>("select id from users order by id").all();
  return rows.map(({ id }) => id);
}

describe.skipIf(binary === "")("the archive", () => {
  for (const commit of ["sync", "async"]) {
    test.concurrent(
      `has ${commit === "sync" ? "all acknowledged writes" : "a prefix of the commits"} when the machine is lost in ${commit} mode`,
      async () => {
        using place = makePlace();
        let known: number[] = [];
        for (let round = 0; round < ROUNDS; round += 1) {
          const server = place.startServer({
            ARCHIVE_COMMIT: commit,
            ARCHIVE_RESTORE: "if-missing",
          });
          const writing = writeUntilKilled(await urlOf(server));
          await Bun.sleep(MIN_ROUND_MS + Math.random() * MAX_ROUND_MS);
          server.kill("SIGKILL");
          await server.ended;
          const acknowledged = [...known, ...(await writing)];
          rmSync(place.data, { recursive: true });

          const restored = place.at("restored.db");
          const { code, stderr } = await runBinary(
            ["restore", "--from", place.environment.ARCHIVE_URL, "--database-url", restored],
            {},
          );
          expect([code, stderr]).toEqual([0, ""]);
          expect(await runBinary(["check", "--database-url", restored])).toMatchObject({
            code: 0,
            stdout: "ok\n",
          });
          const ids = idsIn(restored);
          // Ids are consecutive in the order of commits.
          expect(ids).toEqual(ids.map((_, at) => at + 1));
          const lost = acknowledged.filter((id) => id > ids.length);
          if (commit === "sync") expect(lost).toEqual([]);
          known = ids;
          for (const suffix of ["", "-archive", "-serving"]) rmSync(restored + suffix);
        }
        expect(known.length).toBeGreaterThan(0);
      },
      60_000 * ROUNDS,
    );
  }

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
      `Cannot open ${place.environment.DATABASE_URL}: there is no database, but its archive has one: run \`user-api restore --from ${place.environment.ARCHIVE_URL}\`, or set ARCHIVE_RESTORE=if-missing\n`,
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
