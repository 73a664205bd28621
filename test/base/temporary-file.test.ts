import { expect, test } from "bun:test";
import { chownSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { claimTemporary } from "../../src/base/temporary-file.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";

const dead = Bun.spawnSync(["true"]).pid;
/** Process ids of a live process, and of one that belongs to another user unless the tests run as root. */
const alive = [process.ppid, 1].filter((pid) => pid !== process.pid);

function write(directory: TemporaryDirectory, names: readonly string[], ageS = 0): void {
  for (const name of names) {
    writeFileSync(directory.at(name), "");
    const timeS = Date.now() / 1000 - ageS;
    utimesSync(directory.at(name), timeS, timeS);
  }
}

const of = (target: string, pid: number) => `${target}.user-api-${pid}-0123abcd.partial`;
const ownName = new RegExp(`^a\\.db\\.user-api-${process.pid}-[0-9a-f]{8}\\.partial$`);

test("claimTemporary removes what its own id and dead processes have left, of other targets after an hour, and nothing else", () => {
  using directory = makeDirectory();
  write(directory, [of("a.db", process.pid), of("monday.db", dead)], 3_700);
  for (const target of ["a.db", "tuesday.db-check"]) mkdirSync(directory.at(of(target, dead)));
  write(directory, [`${of("a.db", dead)}/new.db`, `${of("a.db", dead)}/new.db-wal`]);
  const young = of("tuesday.db", dead);
  write(directory, [young], 3_500);
  const old = [
    ...alive.map((pid) => of("a.db", pid)),
    "a.db",
    "a.db-wal",
    "a.db.partial",
    `a.db.user-api-${dead}`,
    `a.db.user-api-${dead}-0123abcd.partial.bak`,
    `a.db.user-api-x-0123abcd.partial`,
    `a.db.user-api-${dead}.partial`,
    `.user-api-${dead}-0123abcd.partial`,
  ];
  write(directory, old, 86_400);
  for (const path of ["a.db", "no/such/a.db"])
    expect(basename(claimTemporary(directory.at(path)))).toMatch(ownName);
  const kept = [...old, young, of("tuesday.db-check", dead)];
  expect(readdirSync(directory.path).sort()).toEqual(kept.sort());
});

test.if(process.getuid?.() === 0)("claimTemporary keeps the directory of another user", () => {
  using directory = makeDirectory();
  mkdirSync(directory.at(of("a.db", dead)));
  chownSync(directory.at(of("a.db", dead)), 4321, 4321);
  claimTemporary(directory.at("a.db"));
  expect(readdirSync(directory.path)).toEqual([of("a.db", dead)]);
});
