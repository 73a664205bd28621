// A database on a full disk, on a server whose write-ahead log is on another disk.
import { expect, test } from "bun:test";
import { chownSync, rmSync, statSync } from "node:fs";
import { fillDisk, mountDisk } from "../binary/disk.ts";
import { newUser } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { withStore } from "../support/open-store.ts";
import { findPrograms, runOn, startInstance } from "./instance.ts";

const programs = findPrograms();
using probe = mountDisk(2 ** 20);

test.if(programs !== null && probe !== null)(
  "checkUsable fails from the first write that finds the disk full until there is space again",
  async () => {
    await using instance = await startInstance(programs ?? "", {});
    using disk = mountDisk(64 * 2 ** 20);
    if (disk === null) throw new Error("the disk cannot be mounted");
    const { uid, gid } = statSync(instance.data);
    chownSync(disk.path, uid, gid);
    await runOn(instance.url, `create tablespace small location '${disk.path}'`);
    await runOn(instance.url, "create database full_disk tablespace small");
    await withStore(instance.url.replace(/postgres$/, "full_disk"), async (store) => {
      const filler = disk.at("filler");
      fillDisk(filler);
      for (let isFull = false; !isFull; )
        await newUser(store, { metadata: { note: "n".repeat(500) } }).catch((error) => {
          expect(error.message).toContain("lacks disk space");
          isFull = true;
        });
      await expectRejection(store.checkUsable(), "unavailable");
      rmSync(filler);
      // The result of a check is reused for a second.
      const isUsable = () =>
        store.checkUsable().then(
          () => true,
          () => false,
        );
      while (!(await isUsable())) await Bun.sleep(10);
      await newUser(store);
    });
  },
  180_000,
);
