import { expect, test } from "bun:test";
import { hashToken, newToken } from "../../src/token.ts";
import { newUser, type Open, openWithClock, orderFields } from "./open.ts";

export function atOnceContract(open: Open): void {
  test("`at_once` has what the stores have, as soon as a write has resolved", async () => {
    await using it = await openWithClock(open);
    const { users, orders, tokens, at_once } = it.store;
    if (at_once === null) return;
    const hash = hashToken(newToken());
    expect([at_once.user(1), at_once.order(1), at_once.token(hash)]).toEqual([null, null, null]);

    const user = await newUser(it.store);
    const { record: order } = await orders.place(orderFields(user.id), null);
    const token = await tokens.create({ hash, name: "a", scope: "read", expires_at: null });
    expect(at_once.user(user.id)).toEqual(user);
    expect(at_once.order(order.id)).toEqual(order);
    expect(at_once.token(hash)).toEqual(token);

    it.pass(1000);
    const edited = await users.update(user.id, () => ({ ...user, name: "Ann" }), null);
    const paid = await orders.update(order.id, () => ({ status: "paid", metadata: {} }), null);
    const revoked = await tokens.revoke("a");
    expect(at_once.user(user.id)).toEqual(edited);
    expect(at_once.order(order.id)).toEqual(paid);
    expect(at_once.token(hash)).toEqual(revoked);
    expect(at_once.user(user.id)).toEqual(await users.get(user.id));
    expect(at_once.order(order.id)).toEqual(await orders.get(order.id));
    expect(at_once.token(hash)).toEqual(await tokens.find(hash));
  });
}
