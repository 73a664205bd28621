// Replicas of two versions on one database: the newer one has added a column.
import { expect, test } from "bun:test";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dropDatabase, newDatabase, runOnServer } from "../http/backend.ts";
import { runChangesModel } from "../support/changes-model.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { binary } from "../support/program.ts";
import { possible, runCommand } from "./pair.ts";

const root = `${import.meta.dir}/../..`;
const SECONDS = 10;

function makeNewerProgram(directory: TemporaryDirectory): readonly string[] {
  cpSync(`${root}/src`, directory.at("src"), { recursive: true });
  for (const name of ["node_modules", "package.json"]) {
    symlinkSync(`${root}/${name}`, directory.at(name));
  }
  const path = directory.at("src/postgres/whole/migrate.ts");
  const migrations = "[splitStatements(tables)]";
  const newer = '[splitStatements(tables), ["alter table orders add column note text"]]';
  const source = readFileSync(path, "utf8");
  expect(source).toContain(migrations);
  writeFileSync(path, source.replace(migrations, newer));
  return [process.execPath, directory.at("src/main.ts")];
}

test.if(possible && isLong)(
  "replicas of two versions serve one database when the newer one has added a column",
  async () => {
    using directory = makeDirectory();
    const newer = makeNewerProgram(directory);
    const database = await newDatabase(directory);
    // Each is started again as the other version.
    const command = (starts: number) => (starts % 2 === 1 ? [binary] : newer);
    const world = { database, processes: 2, hasSnapshots: true, seconds: SECONDS, command };
    expect(await runChangesModel(world)).toBeGreaterThan(SECONDS);
    await runOnServer(database, "select note from orders");
    for (const command of [
      "migrate",
      "check",
      "export orders",
      `copy --to ${directory.at("c.db")}`,
    ]) {
      expect(await runCommand(database, ...command.split(" ")), command).toMatchObject({ code: 0 });
    }
    await dropDatabase(database);
  },
  180_000,
);
