// Lists after histories that leave times in every order within blocks of 4,096 ids, and ids in buckets of every level.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Order, type OrderQuery, orderStatuses } from "../../src/domain/order.ts";
import { expectPage } from "../contract/expect-page.ts";
import { newUser, orderFields, userFields } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { makeRandom } from "../support/random.ts";
import { openDatabase, query } from "./open-database.ts";

const START = Date.UTC(2026, 10, 20);
const timeOf = (ms: number) => new Date(ms).toISOString();
/** The ids of a top-level bucket. */
const FAR = 262_144;
const EDGES = [63, 64, 65, 4095, 4096, 4097];

async function openHistory(path: string, seed: number) {
  const random = makeRandom(seed);
  let clock = START;
  const now = () => {
    // Mostly it goes on, and sometimes it is set back.
    clock += random(3000) === 0 ? -random(9000) : random(4);
    return new Date(clock);
  };
  const store = await openDatabase(path, { now });
  const db = new Database(path);
  const users = [await newUser(store), await newUser(store)].map(({ id }) => id);
  const one = <Value>(values: readonly Value[]) => values[random(values.length)] as Value;
  const lastId = () => Number(query(path, "select coalesce(max(id), 0) from orders")[0]);

  function importAll(timesMs: readonly number[], ids?: readonly number[]) {
    const next = lastId() + 1;
    const records = timesMs.map((ms, at) => {
      const fields = { ...orderFields(one(users)), status: one(orderStatuses) };
      const times = { created_at: timeOf(ms), updated_at: timeOf(ms) };
      return { ...fields, ...times, id: ids?.[at] ?? next + at, version: 1 };
    });
    return store.bulk.orders.import(records);
  }
  const someTimes = (count: number) =>
    Array.from({ length: count }, () => START + random(30_000)).sort();
  const shuffled = (values: number[], distance: number) =>
    values
      .map((value, at) => [value, at + random(distance)] as const)
      .sort(([, one], [, other]) => one - other)
      .map(([value]) => value);

  const steps = {
    async create() {
      const place = () => store.orders.create(orderFields(one(users)), null);
      await Promise.all(Array.from({ length: 1 + random(3000) }, place));
    },
    ascending: () => importAll(someTimes(4000 + random(2000))),
    descending: () => importAll(someTimes(4000 + random(2000)).reverse()),
    jittering: () => importAll(shuffled(someTimes(random(3000)), 3)),
    unordered: () => importAll(shuffled(someTimes(random(3000)), 9000)),
    async withGaps() {
      const width = one([2, 100, 5000]);
      let id = lastId();
      const ids = Array.from({ length: 1 + random(60) }, () => (id += 1 + random(width)));
      await importAll(one([someTimes, () => shuffled(someTimes(ids.length), 99)])(ids.length), ids);
    },
    /** Beyond what a bucket of the top level could have above it. */
    async far() {
      const first = 1 + Math.ceil(lastId() / FAR);
      const ids = Array.from({ length: 66 }, (_, at) => FAR * (first + at));
      await importAll(someTimes(66), ids);
    },
    async removeUsers() {
      const first = Number(query(path, "select max(id) from users")[0]);
      const time = timeOf(START);
      const times = { version: 1, created_at: time, updated_at: time };
      const ids = Array.from({ length: 200 }, (_, at) => first + (at < 99 ? 1 + at : at + FAR));
      await store.bulk.users.import(ids.map((id) => ({ ...userFields(), ...times, id })));
      const removed = ids.filter(() => random(3) > 0);
      await Promise.all(removed.map((id) => store.users.remove(id, null)));
    },
    async intoGaps() {
      const taken = new Set(query(path, "select id from orders"));
      const ids = Array.from({ length: 200 }, () => 1 + random(lastId() + 1));
      const free = [...new Set(ids)].filter((id) => !taken.has(id));
      await importAll(shuffled(someTimes(free.length), 99), free);
    },
    async changeStatuses() {
      const where = `id % ${2 + random(9)} = 1 and id > ${random(9000)}`;
      db.run(`update orders set status = '${one(orderStatuses)}' where ${where}`);
    },
  };

  function someQuery(orders: readonly Order[]): OrderQuery {
    const near = () => timeOf(Date.parse(one(orders).created_at) + random(3) - 1);
    const [from = "", to = ""] = [near(), near()].sort();
    const statuses = orderStatuses.filter(() => random(2) === 0);
    const count = random(3) === 0 ? 30 : orders.length;
    return {
      limit: 1 + random(70),
      ...one([
        { offset: random(count) },
        { offset: one(EDGES) },
        { offset: 0, after: one(orders).id },
      ]),
      ...one([{}, { sort: "-id" }]),
      ...one([{}, { user_id: one(users) }]),
      ...(statuses.length > 0 && random(2) === 0 && { status: statuses }),
      ...one([
        {},
        { created_from: from, created_to: to },
        { created_from: from },
        { created_to: to },
      ]),
    };
  }

  async function expectLists(): Promise<void> {
    // Then the store sees the writes of the other connection.
    await nextTurn();
    const select = "select id, user_id, status, created_at from orders order by id";
    const orders = db.prepare<Order, []>(select).all();
    const users = query(path, "select id from users order by id") as number[];
    for (const offset of [0, 64, users.length - 1])
      await expectPage(store.users.list as never, users, { limit: 9, offset, sort: "-id" });
    for (let left = 60; left > 0; left -= 1) {
      const query = someQuery(orders);
      const { user_id, status, created_from = "", created_to = "~" } = query;
      const matching = orders
        .filter((order) => order.created_at >= created_from && order.created_at < created_to)
        .filter((order) => user_id === undefined || order.user_id === user_id)
        .filter((order) => status === undefined || status.includes(order.status));
      await expectPage(
        store.orders.list,
        matching.map(({ id }) => id),
        query,
      );
    }
  }

  return {
    async run(): Promise<void> {
      const left = Object.values(steps);
      while (left.length > 0) {
        for (const step of left.splice(random(left.length), 1)) await step();
        await expectLists();
        const problems = await store.check();
        expect(problems.filter((problem) => /runs|bucket/.test(problem))).toEqual([]);
      }
      // As after a damaged page.
      db.run("delete from order_runs where first % 3 = 0");
      await expectLists();
    },
    async [Symbol.asyncDispose]() {
      db.close();
      await store.close();
    },
  };
}

for (const seed of [1, 2])
  test(`lists return every page, with and without times, in history ${seed}`, async () => {
    using directory = makeDirectory();
    await using history = await openHistory(directory.at("a.db"), seed * 2_654_435);
    await history.run();
  });
