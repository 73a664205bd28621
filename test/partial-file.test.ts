import { expect, test } from "bun:test";
import { readdirSync, utimesSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { claimPartial } from "../src/partial-file.ts";
import { type Folder, makeFolder } from "./folder.ts";

/** The id of a process that has ended. */
const dead = Bun.spawnSync(["true"]).pid;
/** Of one that is alive, and of one that belongs to another user unless root runs the tests. */
const alive = [process.ppid, 1].filter((pid) => pid !== process.pid);

function write(folder: Folder, names: readonly string[], age_s = 0): void {
  for (const name of names) {
    writeFileSync(folder.at(name), "");
    const time_s = Date.now() / 1000 - age_s;
    utimesSync(folder.at(name), time_s, time_s);
  }
}

const of = (target: string, pid: number) => `${target}.user-api-${pid}.partial`;
const withSidecars = (name: string) => ["", "-wal", "-shm", "-journal"].map((end) => name + end);

test("`claimPartial` removes the files of dead processes and of its own id when the target is the same", () => {
  using folder = makeFolder();
  write(folder, [...withSidecars(of("a.db", dead)), ...withSidecars(of("a.db", process.pid))]);
  expect(claimPartial(folder.at("a.db"))).toBe(folder.at(of("a.db", process.pid)));
  expect(readdirSync(folder.path)).toEqual([]);
});

test("`claimPartial` leaves the files of processes that are alive when it runs", () => {
  using folder = makeFolder();
  const names = alive.flatMap((pid) => withSidecars(of("a.db", pid)));
  write(folder, names, 86_400);
  claimPartial(folder.at("a.db"));
  expect(readdirSync(folder.path).sort()).toEqual(names.sort());
});

test("`claimPartial` removes files of other targets when they are older than an hour", () => {
  using folder = makeFolder();
  write(folder, [of("monday.db", dead)], 3_700);
  write(folder, [of("tuesday.db", dead)], 3_500);
  claimPartial(folder.at("wednesday.db"));
  expect(readdirSync(folder.path)).toEqual([of("tuesday.db", dead)]);
});

test("`claimPartial` leaves all other files when their names are similar", () => {
  using folder = makeFolder();
  const names = [
    "a.db",
    "a.db-wal",
    "a.db.partial",
    `a.db.user-api-${dead}`,
    `a.db.user-api-${dead}.partial.bak`,
    `a.db.user-api-x.partial`,
    `.user-api-${dead}.partial`,
  ];
  write(folder, names, 86_400);
  claimPartial(folder.at("a.db"));
  expect(readdirSync(folder.path).sort()).toEqual(names.sort());
});

test("`claimPartial` only returns the name when the directory cannot be read", () => {
  using folder = makeFolder();
  expect(basename(claimPartial(folder.at("no/such/a.db")))).toBe(of("a.db", process.pid));
});
