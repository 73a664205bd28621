import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { type Open, openWithClock, orderFields, userFields } from "../contract/open.ts";
import { storeContract } from "../contract/store.contract.ts";
import { makePath, openDatabase } from "./open-database.ts";

const open: Open = (options) => openDatabase(makePath().path, options);

storeContract("sqlite", open);

test("get and find return the record, not a promise, once a write has resolved", async () => {
  await using it = await openWithClock(open);
  const { users, orders, tokens } = it.store;
  const hash = hashToken(newToken());
  expect([users.get(1), orders.get(1), tokens.find(hash)]).toEqual([null, null, null]);

  const user = await users.create(userFields(), null);
  const order = await orders.create(orderFields(user.id), null);
  const token = await tokens.create({ hash, name: "a", scope: "read", expires_at: null });
  expect([users.get(user.id), orders.get(order.id)]).toEqual([user, order]);
  expect(tokens.find(hash)).toEqual(token);
});

test("a dry import does not block checkpoints when called repeatedly", async () => {
  const { path } = makePath();
  await using store = await openDatabase(path);
  using db = new Database(path);
  const checkpoint = db.prepare<{ busy: number }, []>("pragma wal_checkpoint(truncate)");
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await store.users.create(userFields(), null);
    await store.bulk.users.import([userFields()], { dryRun: true });
    expect(checkpoint.get()).toMatchObject({ busy: 0 });
  }
});

test("SQLite renders every character as JSON.stringify does", () => {
  using db = new Database();
  const quote = db.prepare<{ json: string }, [text: string]>("select json_quote(?) as json");
  for (let plane = 0; plane < 17; plane += 1) {
    const codes = Array.from({ length: 2 ** 16 }, (_, at) => plane * 2 ** 16 + at);
    // No field contains the others.
    const isScalar = (code: number) => code > 0 && (code < 0xd800 || code > 0xdfff);
    const text = String.fromCodePoint(...codes.filter(isScalar));
    expect(quote.get(text)?.json === JSON.stringify(text)).toBe(true);
  }
});
