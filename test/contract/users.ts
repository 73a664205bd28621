import { expect, test } from "bun:test";
import { listed } from "../support/listed.ts";
import {
  all,
  expectAscendingTimes,
  newUser,
  type Open,
  openWithClock,
  userFields,
} from "./open.ts";

export function usersContract(open: Open): void {
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

  test("users.update does not move updated_at back when the clock goes back", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    await expectAscendingTimes(it, it.store.users, id, () => userFields());
  });
}
