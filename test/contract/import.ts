import { expect, test } from "bun:test";
import type { ImportResult } from "../../src/domain/bulk.ts";
import { createImportRun } from "../../src/domain/import-run.ts";
import type { Order } from "../../src/domain/order.ts";
import type { User } from "../../src/domain/user.ts";
import { listed } from "../support/listed.ts";
import { all, newUser, type Open, openWithClock, orderFields, userFields } from "./open.ts";

const created: ImportResult = { outcome: "created" };
const unchanged: ImportResult = { outcome: "unchanged" };
const rejected = (reason: string): ImportResult => ({ outcome: "rejected", reason });
const createdAt = "2020-01-02T03:04:05.678Z";
const updatedAt = "2021-01-02T03:04:05.678Z";

function oldUser(id: number, fields: Partial<User> = {}): User {
  const times = { version: 3, created_at: createdAt, updated_at: updatedAt };
  return { id, ...userFields({ email: `${id}@example.com` }), ...times, ...fields };
}

function oldOrder(id: number, userId: number, fields: Partial<Order> = {}): Order {
  const times = { version: 2, created_at: createdAt, updated_at: updatedAt };
  return { id, ...orderFields(userId), status: "paid", ...times, ...fields };
}

export function importContract(open: Open): void {
  test("import stores the records that it does not reject, and in a dry run nothing, with the same results", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { bulk } = store;
    const user = await newUser(store);
    const known = oldUser(5, { email: "5@B.CD", metadata: { a: "1", b: "2" } });
    const added = userFields({ email: "new@example.com", metadata: { a: "1", b: "2" } });
    const metadata = { b: "2", a: "1" };
    const batches = [
      [known, known, user],
      [oldUser(7, { email: user.email, reference: "7" }), added, { ...known, metadata }],
      // The previous record would have been assigned this id.
      [oldUser(6), { ...added, metadata }, { ...known, version: 7 }, oldUser(2 ** 25), known],
    ];
    const keyed = { ...orderFields(1), reference: "a:1" };
    const { user_id: _, ...nameless } = keyed;
    const byEmail = { ...nameless, reference: "a:2", user_email: user.email.toUpperCase() };
    const unknown = { ...byEmail, reference: "a:3", user_email: "nobody@b.cd" };
    const orderBatches = [
      [oldOrder(9, 1), oldOrder(9, 1), keyed],
      [oldOrder(9, 1), keyed, { ...keyed, currency: "USD" }],
      [oldOrder(9, 1), oldOrder(9, 1, { version: 7 }), oldOrder(4, 99), byEmail, unknown],
    ];
    async function importAll(dryRun: boolean): Promise<ImportResult[]> {
      const results: ImportResult[] = [];
      for (const [table, all] of Object.entries({ users: batches, orders: orderBatches })) {
        const options = { dryRun, run: createImportRun() };
        for (const [at, batch] of all.entries()) {
          const lines = [1, 2, 3, 4, 5].map((line) => line + 3 * at);
          const given = [batch as never, { ...options, lines }] as const;
          results.push(...(await bulk[table as "users" | "orders"].import(...given)));
        }
      }
      return results;
    }
    const expected = await importAll(true);
    expect((await listed(store.users.list(all))).rows).toEqual([user]);
    expect((await store.orders.list(all)).total).toBe(0);
    expect((await newUser(store)).id).toBe(2);
    await store.users.remove(2, null);
    expect(await importAll(false)).toEqual(expected);
    const { rows } = await listed(store.users.list(all));
    expect(rows.map(({ id }) => id)).toEqual([1, 5, 6]);
    const differ = (field: string, lines: string) =>
      rejected(`${field} is that of lines ${lines}, which have different values`);
    expect(expected).toEqual([
      ...[created, unchanged, unchanged],
      ...[differ("email", "3 and 4"), created, unchanged],
      ...[differ("id", "5 and 7"), differ("id", "5 and 7"), differ("id", "1 and 9")],
      rejected(`id must be at most ${2 ** 24} beyond the last one, 6`),
      differ("id", "1 and 9"),
      ...[created, unchanged, created],
      ...[unchanged, differ("reference", "3 and 6"), differ("reference", "3 and 6")],
      ...[differ("id", "1 and 8"), differ("id", "1 and 8")],
      rejected("user_id must be an existing user"),
      ...[created, rejected("user_email must be the email of an existing user")],
    ]);
    expect(await store.check()).toEqual([]);
  });
}
