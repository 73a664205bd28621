// The change feed when commits are lost: a client that has read further gets 410, also after there are more changes again.
import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Store } from "../../src/domain/store.ts";
import { newUser } from "../contract/open.ts";
import { startSwitch } from "../failover/switch.ts";
import { expectRejection } from "../support/expect-error.ts";
import { withStore } from "../support/open-store.ts";
import { findPrograms, type Instance, makeInstance, runOn } from "./instance.ts";

const programs = findPrograms() ?? "";
const possible = ["pg_basebackup", "pg_ctl"].every((name) => existsSync(join(programs, name)));

async function addUsers(store: Store, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await newUser(store);
}

async function feedOf(store: Store) {
  const { feed, last } = await store.changes.list({ limit: 1, offset: 0 });
  return { feed, last };
}

/** Promotion ends some time after the server accepts connections. */
async function untilWritable(url: string): Promise<void> {
  const statement = "select where not pg_is_in_recovery()";
  while ((await runOn(url, statement)).length === 0) await Bun.sleep(10);
}

const losses = [
  {
    what: "the database is restored to a point in time",
    settings: { recovery_target_name: "before", recovery_target_action: "promote" },
    async lose(_primary: Instance, recovered: Instance, write: () => Promise<void>) {
      await write();
      await recovered.start();
    },
  },
  {
    what: "a standby is promoted that has not received all commits",
    settings: {},
    async lose(primary: Instance, recovered: Instance, write: () => Promise<void>) {
      await recovered.start();
      // A standby shows the changes that the primary has numbered.
      const numbered = await withStore(primary.url, feedOf);
      await withStore(
        recovered.url,
        async (standby) => {
          while ((await feedOf(standby)).last < numbered.last) await Bun.sleep(10);
          expect(await feedOf(standby)).toEqual(numbered);
          expect((await standby.users.list({ limit: 1, offset: 0 })).total).toBe(3);
        },
        { mode: "serve", create: false },
      );
      recovered.stop("fast");
      await write();
      primary.stop("immediate");
      await recovered.start();
      await runOn(recovered.url, "select pg_promote()");
    },
  },
] as const;

describe.if(possible)("the change feed", () => {
  test.each(losses)(
    "has another name when $what",
    async ({ settings, lose }) => {
      await using primary = await makeInstance(programs, { fsync: "off" });
      await primary.start();
      await withStore(primary.url, (store) => addUsers(store, 3));
      await using recovered = await makeInstance(programs, { fsync: "off", ...settings }, primary);
      await runOn(primary.url, "select pg_create_restore_point('before')");
      let before = { feed: "", last: 0 };
      await lose(primary, recovered, async () => {
        before = await withStore(primary.url, async (store) => {
          await addUsers(store, 3);
          return feedOf(store);
        });
      });
      expect(before.last).toBe(6);
      await untilWritable(recovered.url);
      await withStore(recovered.url, async (store) => {
        await addUsers(store, 4);
        const { feed, last } = await feedOf(store);
        expect(last).toBe(7);
        expect(feed).not.toBe(before.feed);
        const continued = async () =>
          store.changes.list({ limit: 1, offset: 0, after: before.last, feed: before.feed });
        await expectRejection(continued(), "changes_reset");
        expect(await store.check()).toEqual([]);
      });
    },
    180_000,
  );
});

/** @returns the message of the rejection; `null` if the user was created */
function problemOfCreate(store: Store): Promise<string | null> {
  return newUser(store).then(
    () => null,
    (error) => error.message,
  );
}

describe.if(possible)("connections to a standby", () => {
  test("are replaced, and reads go on, whenever the endpoint leads to the primary again", async () => {
    await using primary = await makeInstance(programs, { fsync: "off" });
    await primary.start();
    await using endpoint = await startSwitch(primary.url);
    await withStore(endpoint.through(primary.url), async (store) => {
      await addUsers(store, 1);
      await using standby = await makeInstance(programs, { fsync: "off" }, primary);
      await standby.start();
      for (let created = 1; created <= 10; created += 1) {
        endpoint.pointAt(standby.url);
        // The first connections are closed. Their requests fail, and the next ones reach the standby.
        while (!(await problemOfCreate(store))?.includes("read-only")) await Bun.sleep(5);
        const list = () => store.users.list({ limit: 1, offset: 0 });
        while ((await list()).total < created) await Bun.sleep(5);
        endpoint.pointAt(primary.url, true);
        while ((await problemOfCreate(store)) !== null) {
          expect((await list()).total).toBe(created);
          await Bun.sleep(5);
        }
        expect((await list()).total).toBe(created + 1);
      }
    });
  });
});
