// Kills a server while it writes a file, as Linux does when memory is short, and starts it again.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readdirSync, rmSync } from "node:fs";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { againstBinary } from "../http/server.ts";
import { binary, startProgram } from "../program.ts";

function start(directory: TemporaryDirectory, ...args: string[]) {
  const env = { DATABASE_URL: directory.at("a.db"), PORT: "0" };
  return startProgram([binary, ...args], { env });
}

/** Creates a database of an earlier version that takes a while to copy. */
async function makeLarge(directory: TemporaryDirectory): Promise<void> {
  for (const name of readdirSync(directory.path)) rmSync(directory.at(name));
  expect((await start(directory, "token", "create", "a").ended).code).toBe(0);
  using db = new Database(directory.at("a.db"));
  db.run("pragma synchronous = off");
  db.run("create table filler (content blob)");
  for (let count = 0; count < 30; count += 1) {
    db.run("insert into filler values (zeroblob(5000000))");
  }
  for (const table of ["changes", "feed"]) db.run(`drop table ${table}`);
  db.run("pragma user_version = 3");
}

function partials(directory: TemporaryDirectory): string[] {
  return readdirSync(directory.path).filter((name) => name.includes(".partial"));
}

/** Kills a server while it copies the database before the migration, three times. */
async function killRepeatedly(directory: TemporaryDirectory): Promise<void> {
  for (let round = 0; round < 3; round += 1) {
    const child = start(directory, "serve");
    const own = new RegExp(`^a\\.db\\.v3\\.user-api-${child.pid}-[0-9a-f]{8}\\.partial$`);
    const isThere = () => partials(directory).some((name) => own.test(name));
    while (!child.hasExited() && !isThere()) await Bun.sleep(1);
    child.kill("SIGKILL");
    await child.ended;
    if (readdirSync(directory.path).includes("a.db.v3")) {
      // Too late: the copy was complete.
      await makeLarge(directory);
      round = -1;
      continue;
    }
    expect(partials(directory).filter((name) => name.endsWith(".partial"))).toEqual([
      expect.stringMatching(own),
    ]);
  }
}

test.if(againstBinary)(
  "serve removes the temporary files of servers that were killed during a migration",
  async () => {
    using directory = makeDirectory();
    await makeLarge(directory);
    await killRepeatedly(directory);
    const child = start(directory, "serve");
    while (!child.hasExited() && !readdirSync(directory.path).includes("a.db.v3")) {
      await Bun.sleep(5);
    }
    child.kill("SIGTERM");
    const { code, stderr } = await child.ended;
    expect(code, stderr).toBe(0);
    expect(partials(directory)).toEqual([]);
  },
);
