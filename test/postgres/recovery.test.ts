// A standby: the change feed when it is promoted without all commits, and connections that have led to it for a moment.
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Store } from "../../src/domain/store.ts";
import { newUser } from "../contract/open.ts";
import { startSwitch } from "../failover/switch.ts";
import { expectRejection } from "../support/expect-error.ts";
import { withStore } from "../support/open-store.ts";
import { findPrograms, runOn, startInstance } from "./instance.ts";

const programs = findPrograms() ?? "";
const possible = ["pg_basebackup", "pg_ctl"].every((name) => existsSync(join(programs, name)));

const READ_ONLY = "the database is read-only at the moment";

const startServer = (primaryUrl: string | null = null) =>
  startInstance(programs, { fsync: "off" }, primaryUrl);

async function addUsers(store: Store, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await newUser(store);
}

async function feedOf(store: Store) {
  const { feed, last } = await store.changes.list({ limit: 1, offset: 0 });
  return { feed, last };
}

const countUsers = async ({ users }: Store) => (await users.list({ limit: 1, offset: 0 })).total;

/** @returns the message of the rejection; `null` if the user was created */
function problemOfCreate(store: Store): Promise<string | null> {
  return newUser(store).then(
    () => null,
    (error) => error.message,
  );
}

test.if(possible)(
  "connections leave a standby whenever the endpoint leads to the primary again, and the feed has another name when it is promoted without all commits",
  async () => {
    await using primary = await startServer();
    await using endpoint = await startSwitch(primary.url);
    await withStore(primary.url, (store) => addUsers(store, 1));
    await using standby = await startServer(primary.url);
    await withStore(endpoint.through(primary.url), async (store) => {
      for (let created = 1; created <= 2; created += 1) {
        endpoint.pointAt(standby.url);
        // The first connections are closed. Their requests fail, and the next ones reach the standby.
        while ((await problemOfCreate(store)) !== READ_ONLY) await Bun.sleep(5);
        while ((await countUsers(store)) < created) await Bun.sleep(5);
        endpoint.pointAt(primary.url, true);
        while ((await problemOfCreate(store)) !== null) {
          expect(await countUsers(store)).toBe(created);
          await Bun.sleep(5);
        }
        expect(await countUsers(store)).toBe(created + 1);
      }
    });
    // A standby shows the changes that the primary has numbered.
    const numbered = await withStore(primary.url, feedOf);
    const asServer = { mode: "serve", create: false } as const;
    // A command would number the change when it ends.
    await withStore(primary.url, (store) => addUsers(store, 1), asServer);
    await withStore(
      standby.url,
      async (store) => {
        while ((await countUsers(store)) < 4) await Bun.sleep(10);
        // It cannot number the last one.
        expect(await feedOf(store)).toEqual(numbered);
        await expectRejection(store.checkUsable(), "unavailable", READ_ONLY);
      },
      asServer,
    );
    standby.stop("fast");
    const before = await withStore(primary.url, async (store) => {
      await addUsers(store, 3);
      return feedOf(store);
    });
    expect(before.last).toBe(7);
    primary.stop("immediate");
    await standby.start();
    await runOn(standby.url, "select pg_promote()");
    await withStore(standby.url, async (store) => {
      await addUsers(store, 4);
      const { feed, last } = await feedOf(store);
      expect(last).toBe(8);
      expect(feed).not.toBe(before.feed);
      const page = { limit: 1, offset: 0, after: before.last, feed: before.feed };
      await expectRejection(Promise.resolve(store.changes.list(page)), "changes_reset");
      expect(await store.check()).toEqual([]);
    });
  },
  180_000,
);
