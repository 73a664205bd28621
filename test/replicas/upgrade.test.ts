// Replicas of two versions on one database: the newer one has added a column.
import { expect, test } from "bun:test";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { requireExact, startLoad, untilWritten } from "./load.ts";
import { possible, runCommand, startWorld } from "./pair.ts";

const root = `${import.meta.dir}/../..`;
const WRITTEN_MS = 20_000;

/** @returns the command of a program with one more migration */
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
    await using world = await startWorld();
    const { pair, database } = world;
    const load = startLoad(pair);
    const replace = async (place: 0 | 1, program?: readonly string[]) => {
      await untilWritten(load, WRITTEN_MS);
      load.stopping.add(place);
      expect(await pair.both[place].stop()).toBe(0);
      await pair.both[place].restart(program);
      load.ending.clear();
      load.stopping.clear();
    };
    await replace(0, newer);
    await replace(1, newer);
    // A replica of the older version can still be started, and its commands work.
    await replace(1);
    for (const command of [
      "migrate",
      "check",
      "export orders",
      `copy --to ${directory.at("c.db")}`,
    ]) {
      expect(await runCommand(database, ...command.split(" ")), command).toMatchObject({ code: 0 });
    }
    await untilWritten(load, WRITTEN_MS);
    await load.stop();
    expect(load.wrong).toEqual([]);
    await requireExact(pair, load);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  120_000,
);
