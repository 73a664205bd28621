import { expect, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import type { User } from "../../src/user.ts";
import { expectRejection } from "../expect-error.ts";
import { listed } from "../listed.ts";
import { ifMatch } from "../preconditions.ts";
import {
  newUser,
  type Open,
  oddTexts,
  openWithClock,
  orderFields,
  parsed,
  userFields,
} from "./open.ts";

const all = { limit: 1000, offset: 0 };
const time = "2026-11-20T18:57:03.120Z";

export function usersContract(open: Open): void {
  test("users.create returns the complete record", async () => {
    await using it = await openWithClock(open);
    const fields = { email: "Anne@Example.COM", name: "Anne", metadata: { a: "1" } };
    const created = await it.store.users.create(fields, null);
    const user: User = { id: 1, ...fields, version: 1, created_at: time, updated_at: time };
    expect(created.replayed).toBe(false);
    expect(parsed(created.record)).toEqual(user);
    expect(await it.store.users.get(1)).toEqual(created.record);
  });

  test("users.create stores text unchanged when it has special characters", async () => {
    await using it = await openWithClock(open);
    for (const text of oddTexts) {
      const metadata = JSON.parse(JSON.stringify({ [text]: text, empty: "" }));
      const user = await newUser(it.store, { name: text, metadata });
      expect(user).toEqual({ ...user, name: text, metadata });
      expect(parsed(await it.store.users.get(user.id))).toEqual(user);
    }
    const metadata = JSON.parse('{"__proto__": "x", "constructor": "y"}');
    const { id } = await newUser(it.store, { metadata });
    const user = parsed(await it.store.users.get(id));
    expect(JSON.stringify(user?.metadata)).toBe(JSON.stringify(metadata));
  });

  const same: [string, string][] = [
    ["anne@example.com", "anne@example.com"],
    ["anne@example.com", "ANNE@Example.Com"],
    ["änne@exämple.de", "ÄNNE@EXÄMPLE.DE"],
    ["𐐨@example.com", "𐐀@example.com"],
  ];

  for (const [taken, email] of same) {
    test(`users.create rejects ${email} when ${taken} is taken`, async () => {
      await using it = await openWithClock(open);
      const first = await newUser(it.store, { email: taken });
      const second = it.store.users.create(userFields({ email }), null);
      await expectRejection(second, "email_taken", "email is already taken");
      expect(await listed(it.store.users.list(all))).toEqual({ rows: [first], total: 1 });
    });
  }

  test("users.create creates one user when many concurrent calls have the same email", async () => {
    await using it = await openWithClock(open);
    const fields = userFields();
    const tries = Array.from({ length: 20 }, () => it.store.users.create(fields, null));
    const results = await Promise.allSettled(tries);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect((await it.store.users.list(all)).total).toBe(1);
  });

  test("users.create never reuses the id of a removed user", async () => {
    await using it = await openWithClock(open);
    const ids = [await newUser(it.store), await newUser(it.store)].map(({ id }) => id);
    expect(ids).toEqual([1, 2]);
    await it.store.users.remove(2, null);
    expect((await newUser(it.store)).id).toBe(3);
    await it.store.users.remove(3, null);
    await it.store.users.remove(1, null);
    expect((await newUser(it.store)).id).toBe(4);
  });

  test("users.get returns null when there is no such user", async () => {
    await using it = await openWithClock(open);
    for (const id of [0, 1, Number.MAX_SAFE_INTEGER]) {
      expect(await it.store.users.get(id)).toBeNull();
    }
  });

  const pages: [number, number, number[]][] = [
    [50, 0, [1, 2, 3, 4, 5]],
    [2, 0, [1, 2]],
    [2, 2, [3, 4]],
    [2, 4, [5]],
    [2, 1, [2, 3]],
    [1000, 5, []],
    [1, Number.MAX_SAFE_INTEGER, []],
  ];

  test("users.list returns the page and the exact total when limit and offset are given", async () => {
    await using it = await openWithClock(open);
    expect(await listed(it.store.users.list(all))).toEqual({ rows: [], total: 0 });
    for (let count = 0; count < 5; count += 1) await newUser(it.store);
    for (const [limit, offset, ids] of pages) {
      const { rows, total } = await listed(it.store.users.list({ limit, offset }));
      expect([rows.map(({ id }) => id), total]).toEqual([ids, 5]);
    }
  });

  test("users.list returns the one user when the email is given in any case", async () => {
    await using it = await openWithClock(open);
    await newUser(it.store);
    const user = await newUser(it.store, { email: "Änne@Example.com" });
    const found = { rows: [user], total: 1 };
    for (const email of ["Änne@Example.com", "änne@example.com", "ÄNNE@EXAMPLE.COM"]) {
      expect(await listed(it.store.users.list({ ...all, email }))).toEqual(found);
    }
    const past = await listed(it.store.users.list({ limit: 50, offset: 1, email: user.email }));
    expect(past).toEqual({ rows: [], total: 1 });
    const { email } = user;
    const before = await listed(it.store.users.list({ ...all, email, after: user.id - 1 }));
    expect(before).toEqual(found);
    const behind = await listed(it.store.users.list({ ...all, email, after: user.id }));
    expect(behind).toEqual({ rows: [], total: 1 });
    const sort = "-id";
    for (const cursor of [{}, { after: 0 }, { after: user.id + 1 }]) {
      expect(await listed(it.store.users.list({ ...all, email, sort, ...cursor }))).toEqual(found);
    }
    const down = await listed(it.store.users.list({ ...all, email, sort, after: user.id }));
    expect(down).toEqual({ rows: [], total: 1 });
    const none = await listed(it.store.users.list({ ...all, email: "anne@example.com" }));
    expect(none).toEqual({ rows: [], total: 0 });
  });

  test("users.create rejects an email that differs only in a sigma when the other one is at the end of a word", async () => {
    await using it = await openWithClock(open);
    await newUser(it.store, { email: "ασ@x.gr" });
    for (const email of ["ΑΣ@x.gr", "ας@x.gr"]) {
      await expectRejection(it.store.users.create(userFields({ email }), null), "email_taken");
    }
  });

  test("users.update stores the edited fields and the next version", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store, { name: "Anne", metadata: { a: "1" } });
    const other = await newUser(it.store);
    const fields = { email: "new@example.com", name: null, metadata: { b: "2" } };
    it.pass(1000);
    const seen: User[] = [];
    const changed = await it.store.users.update(
      user.id,
      (current) => {
        seen.push(current);
        return fields;
      },
      null,
    );
    expect(seen).toEqual([user]);
    const updatedAt = "2026-11-20T18:57:04.120Z";
    const expected = { ...user, ...fields, version: 2, updated_at: updatedAt };
    expect(parsed(changed)).toEqual(expected);
    expect(await listed(it.store.users.list(all))).toEqual({ rows: [expected, other], total: 2 });
    // The previous email is free again.
    await newUser(it.store, { email: user.email });
  });

  test("users.update does not move updated_at back when the clock goes back", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    const rename = async () => parsed(await it.store.users.update(id, () => userFields(), null));
    it.pass(-60_000);
    expect(await rename()).toMatchObject({ version: 2, created_at: time, updated_at: time });
    it.pass(120_000);
    const updatedAt = "2026-11-20T18:58:03.120Z";
    expect(await rename()).toMatchObject({ version: 3, updated_at: updatedAt });
    it.pass(-30_000);
    expect(await rename()).toMatchObject({ version: 4, updated_at: updatedAt });
    expect(parsed(await it.store.users.get(id))).toMatchObject({
      created_at: time,
      updated_at: updatedAt,
    });
  });

  test("users.update and users.remove reserve memory for a large user, and change nothing without it", async () => {
    await using it = await openWithClock(open);
    const { users } = it.store;
    const small = await newUser(it.store);
    const user = await newUser(it.store, { metadata: { text: "漢".repeat(5000) } });
    const reserved: number[] = [];
    const reserve = (bytes: number) => void reserved.push(bytes);
    const rename = ({ email, metadata }: User) => ({ email, metadata, name: "new" });
    await users.update(small.id, rename, null, null, reserve);
    expect(reserved).toEqual([]);
    const changed = parsed(await users.update(user.id, rename, null, null, reserve));
    expect(changed).toMatchObject({ name: "new", version: 2 });
    expect(Math.min(...reserved)).toBeWithin(15_000, 16_000);

    const none = new AppError("unavailable", "no memory");
    const reject = () => {
      throw none;
    };
    const [update, remove, other] = await Promise.allSettled([
      users.update(user.id, rename, null, null, reject),
      users.remove(user.id, null, null, reject),
      users.update(small.id, rename, null, null, reject),
    ]);
    for (const result of [update, remove]) {
      expect(result).toEqual({ status: "rejected", reason: none });
    }
    expect(other).toMatchObject({ status: "fulfilled", value: { version: 3 } });
    expect(parsed(await users.get(user.id))).toEqual(changed);
    expect(await users.update(user.id + 1, rename, null, null, reject)).toBeNull();
    expect(await users.remove(user.id, null, null, reserve)).not.toBeNull();
  });

  test("users.update changes nothing when the edit throws or has no user", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    it.pass(1000);
    const thrown = new Error("the edit fails");
    const update = it.store.users.update(
      user.id,
      () => {
        throw thrown;
      },
      null,
    );
    await expect(update).rejects.toBe(thrown);
    const edit = () => {
      throw new Error("there is nothing to edit");
    };
    expect(await it.store.users.update(user.id + 1, edit, null)).toBeNull();
    expect(await it.store.users.update(user.id + 1, edit, ifMatch(1))).toBeNull();
    expect(await listed(it.store.users.list(all))).toEqual({ rows: [user], total: 1 });
  });

  test("users.update rejects an email that another user has, but not a change of case of the user's own", async () => {
    await using it = await openWithClock(open);
    const anne = await newUser(it.store, { email: "änne@example.com" });
    const bea = await newUser(it.store, { email: "bea@example.com" });
    const edit = () => userFields({ email: "ÄNNE@example.com" });
    await expectRejection(
      it.store.users.update(bea.id, edit, null),
      "email_taken",
      "email is already taken",
    );
    expect(parsed(await it.store.users.get(bea.id))).toEqual(bea);
    const changed = await it.store.users.update(anne.id, edit, null);
    expect(parsed(changed)).toMatchObject({ email: "ÄNNE@example.com", version: 2 });
  });

  test("users.update and users.remove reject when the version does not match", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    const edit = () => userFields();
    await it.store.users.update(id, edit, ifMatch(1));
    const user = await it.store.users.update(id, edit, ifMatch(7, 2, 9));
    expect(user?.version).toBe(3);
    for (const versions of [[], [1], [2, 4], [Number.NaN]]) {
      await expectRejection(
        it.store.users.update(id, edit, ifMatch(...versions)),
        "version_mismatch",
      );
      await expectRejection(it.store.users.remove(id, ifMatch(...versions)), "version_mismatch");
    }
    expect(await it.store.users.get(id)).toEqual(user);
    expect(await it.store.users.remove(id, ifMatch(3))).toEqual(user);
  });

  test("users.update loses no edit when many are concurrent", async () => {
    await using it = await openWithClock(open);
    const { id, email } = await newUser(it.store, { name: "0" });
    const edit = ({ name }: User) => ({ email, name: String(Number(name) + 1), metadata: {} });
    await Promise.all(Array.from({ length: 50 }, () => it.store.users.update(id, edit, null)));
    expect(parsed(await it.store.users.get(id))).toMatchObject({ name: "50", version: 51 });
  });

  test("users.remove returns the deleted user, and null when there is none", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    expect(parsed(await it.store.users.remove(user.id, null))).toEqual(user);
    expect(await it.store.users.remove(user.id, null)).toBeNull();
    expect(await it.store.users.remove(user.id, ifMatch(1))).toBeNull();
    expect(await it.store.users.get(user.id)).toBeNull();
    await newUser(it.store, { email: user.email });
  });

  test("users.remove rejects when the user has orders", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    await it.store.orders.place(orderFields(user.id), null);
    await expectRejection(
      it.store.users.remove(user.id, null),
      "user_has_orders",
      "user has orders",
    );
    expect(parsed(await it.store.users.get(user.id))).toEqual(user);
    // The version is checked first.
    await expectRejection(it.store.users.remove(user.id, ifMatch(2)), "version_mismatch");
  });
}
