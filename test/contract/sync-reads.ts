import { expect, test } from "bun:test";
import { hashToken, newToken } from "../../src/token.ts";
import { newUser, type Open, openWithClock, orderFields } from "./open.ts";

export function syncReadsContract(open: Open): void {
  test("`sync_reads` returns the same as the stores once a write has resolved", async () => {
    await using it = await openWithClock(open);
    const { users, orders, tokens, sync_reads } = it.store;
    if (sync_reads === null) return;
    const hash = hashToken(newToken());
    expect([sync_reads.user(1), sync_reads.order(1), sync_reads.token(hash)]).toEqual([
      null,
      null,
      null,
    ]);

    const user = await newUser(it.store);
    const { record: order } = await orders.place(orderFields(user.id), null);
    const token = await tokens.create({ hash, name: "a", scope: "read", expires_at: null });
    expect(sync_reads.user(user.id)).toEqual(user);
    expect(sync_reads.order(order.id)).toEqual(order);
    expect(sync_reads.token(hash)).toEqual(token);

    it.pass(1000);
    const edited = await users.update(user.id, () => ({ ...user, name: "Ann" }), null);
    const paid = await orders.update(order.id, () => ({ status: "paid", metadata: {} }), null);
    const revoked = await tokens.revoke("a");
    expect(sync_reads.user(user.id)).toEqual(edited);
    expect(sync_reads.order(order.id)).toEqual(paid);
    expect(sync_reads.token(hash)).toEqual(revoked);
    expect(sync_reads.user(user.id)).toEqual(await users.get(user.id));
    expect(sync_reads.order(order.id)).toEqual(await orders.get(order.id));
    expect(sync_reads.token(hash)).toEqual(await tokens.find(hash));
  });
}
