// Temporary files of commands that were killed.
import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHarness } from "./harness.ts";

/** Temporary files of a dead process, and of a live one. */
const pids = { dead: Bun.spawnSync(["true"]).pid, alive: process.ppid };

const commands: [words: string, target: string, made: string[]][] = [
  ["export users --output u.csv", "u.csv", ["u.csv", "u.csv.sha256"]],
  ["backup b.db", "b.db", ["b.db"]],
  ["copy --to c.db", "c.db", ["c.db"]],
  ["restore backup.db --database-url r.db", "r.db", ["r.db", "r.db-serving"]],
];

for (const [args, target, made] of commands) {
  test(`${args} removes the temporary files of a killed process`, async () => {
    using world = makeHarness();
    await world.run("token", "create", "a");
    const backup = world.at("backup.db");
    expect((await world.run("backup", backup)).code).toBe(0);
    const directory = world.at("new");
    mkdirSync(directory);
    const left = (pid: number) => `${target}.user-api-${pid}-0123abcd.partial`;
    for (const pid of Object.values(pids)) writeFileSync(join(directory, left(pid)), "");
    const paths = args
      .split(" ")
      .map((word) => (/^.\.(csv|db)$/.test(word) ? join(directory, word) : word))
      .map((word) => (word === "backup.db" ? backup : word));
    expect(await world.run(...paths)).toMatchObject({ code: 0 });
    expect(readdirSync(directory).sort()).toEqual([...made, left(pids.alive)].sort());
  });
}
