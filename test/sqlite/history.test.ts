// Histories of records that have many changes, begin at any version, and are deleted and imported again.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { joinRecords } from "../../src/domain/page.ts";
import { prepareHistory } from "../../src/sqlite/tables/history.ts";
import { expectPage } from "../contract/expect-page.ts";
import { newUser, orderFields, rename, setFields, time, userFields } from "../contract/open.ts";
import { makeRandom } from "../support/random.ts";
import { makePath, openDatabase } from "./open-database.ts";

test.each([1, 2])("a history has each page of its changes, in random case %d", async (seed) => {
  const random = makeRandom(seed * 2_654_435);
  const one = <Value>(values: readonly Value[]) => values[random(values.length)] as Value;
  const { path } = makePath();
  let ms = 0;
  await using store = await openDatabase(path, { now: () => new Date(++ms) });
  await newUser(store);
  using db = new Database(path);
  let shown = 0;
  const history = prepareHistory(db, () => shown);
  const ofRecord = "record_id = ? and (type > 3) = ? and id <= ?";
  const changes = db.prepare(`select id from changes where ${ofRecord}`);
  for (let left = 60; left > 0; left -= 1) {
    const id = one([2, 3]);
    const update = () =>
      random(3) === 0
        ? store.orders.update(id, setFields({ metadata: { [++ms]: "" } }), null)
        : store.users.update(id, rename, null);
    await Promise.all(Array.from({ length: one([1, 2, 63, 64, 65, 200]) }, update));
    if (random(2) === 0) await store.users.remove(id, null);
    const times = { created_at: time, updated_at: time };
    const row = { id, ...times, version: one([1, 5, 63, 64, 65, 200]) };
    if (random(2) === 0)
      await store.bulk.users.import([{ ...userFields(), ...row }], { update: random(2) === 0 });
    await store.bulk.orders.import([{ ...orderFields(1), ...row }]);
    if (random(5) === 0) await store.changes.deleteExpired(new Date(ms - random(2000)));
    for (const table of ["users", "orders"] as const) {
      shown = one([Number.MAX_SAFE_INTEGER, ms - random(600)]);
      const ids = changes.values(id, table === "orders", shown).flat() as number[];
      const some = { offset: random(ids.length + 9) };
      const place = one([some, some, { offset: 0, after: random(ms) }]);
      const query = { limit: one([1, 50, 1000]), ...place, sort: one(["id", "-id"] as const) };
      const list = () => {
        const { rows, total } = history({ ...query, table, id });
        return { ...joinRecords(rows, query.limit), total };
      };
      await expectPage(list, ids, query);
    }
  }
  expect(await store.check()).toEqual([]);
});
