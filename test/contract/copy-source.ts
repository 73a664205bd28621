import { expect, test } from "bun:test";
import { type CopyRow, type CopySource, copiedTables } from "../../src/domain/copy.ts";
import type { Open } from "./open.ts";
import { newUser, openWithClock, orderFields, parsed, time, userFields } from "./open.ts";

type Table = Parameters<CopySource["read"]>[0];

async function rowsOf(snapshot: CopySource, table: Table): Promise<CopyRow[]> {
  return (await Array.fromAsync(snapshot.read(table))).flat();
}

export function copySourceContract(open: Open): void {
  test("withCopySource reads a snapshot while others write, and the last assigned ids, also of deleted rows", async () => {
    await using it = await openWithClock(open);
    const idsOf = (snapshot: CopySource) =>
      Promise.all((["users", "orders", "tokens"] as const).map(snapshot.lastId));
    expect(await it.store.withCopySource(idsOf)).toEqual([0, 0, 0]);
    const user = await newUser(it.store, { name: "Ann", metadata: { b: "1", a: "2" } });
    const gone = await newUser(it.store);
    await it.store.users.remove(gone.id, null);
    const { id } = await it.store.orders.create(orderFields(user.id), null);
    await it.store.withCopySource(async (snapshot) => {
      expect(await idsOf(snapshot)).toEqual([2, id, 0]);
      expect(await rowsOf(snapshot, "tokens")).toEqual([]);
      await newUser(it.store);
      await it.store.users.update(1, (ann) => ({ ...ann, name: "Eve" }), null);
      await it.store.orders.create(orderFields(user.id), null);
      const { metadata, ...rest } = user;
      const row = { ...rest, email_key: user.email, metadata: '{"b":"1","a":"2"}' };
      expect(await rowsOf(snapshot, "users")).toEqual([row]);
      const [change, ...others] = await rowsOf(snapshot, "changes");
      expect(others).toHaveLength(3);
      const made = { version: 1, created_at: Date.parse(time) };
      const none = { token: null, status: null, fields: null };
      expect(change).toEqual({ id: 1, type: 1, record_id: user.id, ...made, ...none });
      const orders = await rowsOf(snapshot, "orders");
      expect(orders.map((order) => [order["id"], order["total"]])).toEqual([[id, 100]]);
    });
    expect(parsed(await it.store.users.get(1))?.name).toBe("Eve");
  });

  test("withCopySource reads every table by its sort key when it has more rows than a batch", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    const times = [time, "2026-11-20T18:57:03.121Z"];
    for (const [at, name] of ["é", "a", "B", "~", "!"].entries()) {
      const hash = Bun.CryptoHasher.hash("sha256", name, "hex");
      await it.store.tokens.create({ hash, name, scope: "read", expires_at: null });
      const key = { owner: hash, key: name, fingerprint: hash };
      await it.store.users.create(userFields({ email: `${at}@b.cd` }), key);
      it.clock.time = new Date(times[1 - (at % 2)] ?? "");
    }
    const order = orderFields(user.id);
    const records = Array.from({ length: 600 }, (_, at) => ({ ...order, reference: `k:${at}` }));
    await it.store.bulk.orders.import(records);
    await it.store.withCopySource(async (snapshot) => {
      for (const [name, { columns, sortKey }] of Object.entries(copiedTables)) {
        const batches = await Array.fromAsync(snapshot.read(name as Table));
        expect(Math.max(...batches.map((rows) => rows.length)), name).toBeLessThanOrEqual(100);
        const rows = batches.flat();
        expect(Object.keys(rows[0] ?? {})).toEqual([...columns]);
        const places = rows.map((row) => sortKey.map((column) => row[column] ?? ""));
        const sorted = places.toSorted((left, right) => {
          const at = left.findIndex((cell, n) => cell !== right[n]);
          return (left[at] ?? 0) < (right[at] ?? 0) ? -1 : 1;
        });
        expect(places, name).toEqual(sorted);
      }
    });
  });
}
