import { expect, test } from "bun:test";
import type { User } from "../../src/domain/user.ts";
import { listed } from "../support/listed.ts";
import {
  all,
  expectAscendingTimes,
  newUser,
  type Open,
  openWithClock,
  parsed,
  userFields,
} from "./open.ts";

export function usersContract(open: Open): void {
  test("users.create creates one user when many concurrent calls have the same email", async () => {
    await using it = await openWithClock(open);
    const fields = userFields();
    const tries = Array.from({ length: 20 }, () => it.store.users.create(fields, null));
    const results = await Promise.allSettled(tries);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect((await it.store.users.list(all)).total).toBe(1);
  });

  test("users.list returns the one user with an email, unless the page begins after it", async () => {
    await using it = await openWithClock(open);
    await newUser(it.store);
    const user = await newUser(it.store, { email: "Änne@Exämple.com" });
    const byEmail = (query: object) =>
      listed(it.store.users.list({ ...all, email: "A\u0308NNE@xn--exmple-cua.com", ...query }));
    const sort = "-id";
    const [before, behind] = [user.id - 1, user.id + 1];
    for (const query of [
      {},
      { after: before },
      { sort },
      { sort, after: 0 },
      { sort, after: behind },
    ]) {
      expect(await byEmail(query), JSON.stringify(query)).toEqual({ rows: [user], total: 1 });
    }
    for (const query of [{ offset: 1 }, { after: user.id }, { sort, after: user.id }]) {
      expect(await byEmail(query), JSON.stringify(query)).toEqual({ rows: [], total: 1 });
    }
  });

  test("users.update stores the edited fields and the next version", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store, { name: "Anne", metadata: { a: "1" } });
    const other = await newUser(it.store);
    const fields = userFields({ email: "new@example.com", metadata: { b: "2" } });
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
    expect(seen).toEqual(seen.map(() => user));
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
    await expectAscendingTimes(it, it.store.users, id, () => userFields());
  });
}
