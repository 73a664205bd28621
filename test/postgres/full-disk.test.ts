// A database on a full disk, on a server whose write-ahead log is on another disk.
import { test as anyTest, expect } from "bun:test";
import { chownSync, rmSync, statSync } from "node:fs";
import type { Store } from "../../src/domain/store.ts";
import { fillDisk, mountDisk } from "../binary/disk.ts";
import { newUser } from "../contract/open.ts";
import { withStore } from "../support/open-store.ts";
import { findPrograms, holdOn, runOn, startInstance } from "./instance.ts";

const programs = findPrograms();
using probe = mountDisk(2 ** 20);
const test = anyTest.if(programs !== null && probe !== null);

/** @returns how the first check after the one with this result ends: a result is reused for a second */
async function nextProblem(store: Store, last: unknown): Promise<unknown> {
  for (;;) {
    const [result] = await Promise.allSettled([store.checkUsable()]);
    if (result.status === "fulfilled") return null;
    if (result.reason !== last) return result.reason;
    await Bun.sleep(10);
  }
}

async function untilFull(store: Store): Promise<void> {
  for (let isFull = false; !isFull; )
    await newUser(store, { metadata: { note: "n".repeat(500) } }).catch((error) => {
      expect(error.message).toContain("lacks disk space");
      isFull = true;
    });
}

test("checkUsable fails from the first write that finds the disk full until there is space again, or no permission to look for it", async () => {
  await using instance = await startInstance(programs ?? "", {});
  using disk = mountDisk(64 * 2 ** 20);
  if (disk === null) throw new Error("the disk cannot be mounted");
  const { uid, gid } = statSync(instance.data);
  chownSync(disk.path, uid, gid);
  await runOn(instance.url, `create tablespace small location '${disk.path}'`);
  await runOn(instance.url, "create database full_disk tablespace small");
  const url = instance.url.replace(/postgres$/, "full_disk");
  const filler = disk.at("filler");
  await withStore(url, async (store) => {
    fillDisk(filler);
    await untilFull(store);
    let problem = await nextProblem(store, null);
    expect(problem).toMatchObject({ message: expect.stringContaining("lacks disk space") });
    // As `number_changes`, which would otherwise find the disk full.
    const held = await holdOn(url, "lock table feed_lock in share update exclusive mode");
    for (let checks = 0; checks < 2; checks += 1) {
      problem = await nextProblem(store, problem);
      expect(problem).toMatchObject({ message: "the database is busy" });
    }
    await held.commit();
    rmSync(filler);
    while (problem !== null) problem = await nextProblem(store, problem);
    await newUser(store);
  });
  await runOn(
    url,
    "create role limited login",
    "grant select, insert, update, delete on all tables in schema public to limited",
    "grant all on all sequences in schema public to limited",
  );
  await withStore(url.replace("postgres@", "limited@"), async (store) => {
    fillDisk(filler);
    await untilFull(store);
    rmSync(filler);
    const problem = await nextProblem(store, null);
    expect(problem).toMatchObject({ message: expect.stringContaining("denies") });
    expect(await nextProblem(store, problem)).toBeNull();
  });
}, 180_000);
