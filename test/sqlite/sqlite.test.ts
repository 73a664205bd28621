import { Database } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { type Open, openWithClock, orderFields, setPaid, userFields } from "../contract/open.ts";
import { storeContract } from "../contract/store.contract.ts";
import { makeDirectory } from "../support/directory.ts";
import { openDatabase } from "./open-database.ts";

const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());

const open: Open = (options) => openDatabase(directory.at(`${crypto.randomUUID()}.db`), options);

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

  const edited = await users.update(user.id, () => userFields({ name: "Ann" }), null);
  const paid = await orders.update(order.id, setPaid, null);
  const revoked = await tokens.revoke("a");
  expect([edited?.version, paid?.version]).toEqual([2, 2]);
  expect([users.get(user.id), orders.get(order.id)]).toEqual([edited, paid]);
  expect(tokens.find(hash)).toEqual(revoked);
});

test("users.update changes a user whose email was stored beside one that differs only in a sigma", async () => {
  const path = directory.at("sigma.db");
  await using store = await openDatabase(path);
  const { users } = store;
  await users.create(userFields({ email: "ασ@x.gr" }), null);
  const record = await users.create(userFields({ email: "b@x.gr" }), null);
  // As a migration leaves it.
  using db = new Database(path);
  db.run("update users set email = ?1, email_key = ?1 where id = ?2", ["ας@x.gr", record.id]);
  const edited = await users.update(record.id, (user) => ({ ...user, name: "Bea" }), null);
  expect(edited?.version).toBe(2);
  const keys = db.query("select email_key from users order by id").values().flat();
  expect(keys).toEqual(["ασ@x.gr", "ας@x.gr"]);
});
