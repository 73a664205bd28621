// Runs deploy/litestream.yml with Litestream itself. TEST_LITESTREAM is its path; it is skipped without one.
import { expect } from "bun:test";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { parsedLines } from "../cli/harness.ts";
import { readYaml } from "../deploy/yaml.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { binary, type Running, runBinary, startProgram } from "../support/program.ts";
import { createUser, stop, token, until, urlOf } from "./archived-place.ts";
import { testIf } from "./on-binary.ts";

const litestream = Bun.env["TEST_LITESTREAM"] ?? "";
const environment = { PATH: Bun.env["PATH"], TMPDIR: Bun.env["TMPDIR"] };
const CLIENTS = 4;

function countUploads(replication: Running): number {
  return replication.output().split("ltx file uploaded").length - 1;
}

/** Litestream with the recipe, but for the paths and the kind of the replica. */
async function makeWorld({ at }: TemporaryDirectory) {
  const database = at("data/user-api.db");
  const { dbs, ...recipe } = await readYaml("litestream.yml");
  const interval = { "sync-interval": dbs[0].replica["sync-interval"] };
  const db = {
    ...dbs[0],
    path: database,
    replica: { type: "file", path: at("replica"), ...interval },
  };
  // JSON is YAML.
  await Bun.write(at("config"), JSON.stringify({ ...recipe, dbs: [db] }));
  mkdirSync(at("data"));
  const start = (command: string, ...args: string[]) =>
    startProgram([litestream, command, "-config", at("config"), ...args], { env: environment });
  return {
    database,
    replicate: () => start("replicate"),
    async restoreAnew() {
      rmSync(at("data"), { recursive: true });
      mkdirSync(at("data"));
      expect((await start("restore", database).ended).code).toBe(0);
    },
    serve: () =>
      startProgram([binary, "serve"], {
        env: { DATABASE_URL: database, PORT: "0", API_TOKEN: token },
      }),
  };
}

async function storedIds(database: string): Promise<number[]> {
  const { stdout } = await runBinary(["export", "users", "--database-url", database]);
  return parsedLines(stdout).map(({ id }) => id);
}

testIf(litestream !== "")("Litestream restores what it has uploaded", async () => {
  using directory = makeDirectory();
  const world = await makeWorld(directory);
  const server = world.serve();
  const url = await urlOf(server);
  const replication = world.replicate();
  await until(() => countUploads(replication) > 0);
  const acknowledged: number[] = [];
  const keepCreating = async () => {
    for (;;) acknowledged.push((await createUser(url)).json.data.id);
  };
  const clients = Array.from({ length: CLIENTS }, () => keepCreating().catch(() => {}));
  await until(() => acknowledged.length > 100);
  const before = [...acknowledged];
  const uploads = countUploads(replication);
  await until(() => countUploads(replication) > uploads + 1);
  server.kill("SIGKILL");
  replication.kill("SIGKILL");
  await Promise.all([...clients, server.ended, replication.ended]);
  await world.restoreAnew();
  expect((await runBinary(["check", "--database-url", world.database])).stdout).toBe("ok\n");
  const ids = await storedIds(world.database);
  expect(ids).toEqual(Array.from({ length: ids.length }, (_, at) => at + 1));
  expect(ids).toEqual(expect.arrayContaining(before));

  // On the new machine, Litestream has the file open before the server.
  const next = world.replicate();
  await until(() => existsSync(`${world.database}-wal`));
  const nextServer = world.serve();
  const { json } = await createUser(await urlOf(nextServer));
  await stop(nextServer);
  await stop(next);
  await world.restoreAnew();
  expect(await storedIds(world.database)).toEqual([...ids, json.data.id]);
});
