/** Servers with an archive, as programs, and what their archive restores. */
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { mkdirSync, rmSync } from "node:fs";
import { newToken } from "../../src/domain/token.ts";
import { sendCall } from "../http/server.ts";
import { startS3Server } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { binary, type Running, runBinary, startProgram } from "../support/program.ts";

export const token = newToken();

type Settings = Readonly<Record<string, string>>;

/**
 * A bucket, and a directory for databases. Servers are killed at the end.
 * @param kind whether the archive is in the bucket or in a directory
 */
export async function makePlace(settings: Settings = {}, kind: "bucket" | "directory" = "bucket") {
  await using resources = new AsyncDisposableStack();
  const { at } = resources.use(makeDirectory());
  const storage = resources.use(await startS3Server());
  if (kind === "directory") mkdirSync(at("archive"));
  const environment = {
    ...storage.environment,
    DATABASE_URL: at("data/a.db"),
    ARCHIVE_URL: kind === "bucket" ? "s3://bucket" : `file://${at("archive")}`,
    API_TOKEN: token,
    PORT: "0",
    ...settings,
  };
  const kept = resources.move();
  return {
    at,
    storage,
    environment,
    start(more: Settings = {}): Running {
      const server = startProgram([binary, "serve"], { env: { ...environment, ...more } });
      kept.defer(async () => {
        server.kill("SIGKILL");
        await server.ended;
      });
      return server;
    },
    loseData: () => rmSync(at("data"), { recursive: true, force: true }),
    /** @returns the users in the restored database, in the order of their ids */
    async restore({ path = at("restored.db") } = {}) {
      for (const suffix of ["", "-archive", "-serving"]) rmSync(path + suffix, { force: true });
      const command = ["restore", "--from", environment.ARCHIVE_URL, "--database-url", path];
      const restored = await runBinary(command, environment);
      expect([restored.code, restored.stderr]).toEqual([0, ""]);
      using db = new Database(path, { readonly: true });
      return db.prepare("select id, email, name from users order by id").all();
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

export async function urlOf(server: Running): Promise<string> {
  const url = await server.listening;
  if (url === null) throw new Error(server.output());
  return url;
}

/** A server that stops waits only 5 s for its first base, which takes longer on a busy machine. */
export async function stop(server: Running): Promise<void> {
  const lacksBase = () => /"continued":false(?!.*"archive base written")/s.test(server.output());
  await until(() => server.hasExited() || !lacksBase());
  server.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
}

export function createUser(url: string, email = `${crypto.randomUUID()}@example.com`) {
  return sendCall(url, token, "POST", "/users", { body: { email } });
}

export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await Bun.sleep(20);
}
