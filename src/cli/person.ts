import { formatCount } from "../base/count-text.ts";
import { fail } from "../base/error.ts";
import { quoteReadably } from "../base/readable-text.ts";
import type { Change } from "../domain/change.ts";
import { type Order, patchOrder } from "../domain/order.ts";
import type { RecordTable } from "../domain/record.ts";
import type { Store } from "../domain/store.ts";
import { eraseUser, type User } from "../domain/user.ts";
import { readRecords } from "./export.ts";
import { type CommandSystem, withStore } from "./system/system.ts";

async function findUser({ users }: Store, person: string): Promise<User> {
  const filter = /^[1-9]\d{0,14}$/.test(person) ? { id: [Number(person)] } : { email: person };
  const { records } = await users.list({ limit: 1, offset: 0, ...filter });
  if (records === "") fail("operator", `No user has the email or id ${quoteReadably(person)}`);
  return JSON.parse(records);
}

function ordersOf({ orders }: Store, { id }: User) {
  return readRecords<Order>((page) => orders.list({ ...page, user_id: id }));
}

async function* changesOf(store: Store, user: User): AsyncGenerator<readonly Change[]> {
  const historyOf = (table: RecordTable, id: number) =>
    readRecords<Change>((page) => store.changes.listOf({ ...page, table, id }));
  yield* historyOf("users", user.id);
  for await (const orders of ordersOf(store, user))
    for (const { id } of orders) yield* historyOf("orders", id);
}

/** Prints one JSON object, with an order or a change per line. A server may be running. */
export async function exportPerson(system: CommandSystem, person: string): Promise<void> {
  await withStore(system, { mode: "read" }, async (store) => {
    const user = await findUser(store, person);
    system.stdout(`{"user":${JSON.stringify(user)}`);
    const lists = { orders: ordersOf(store, user), changes: changesOf(store, user) };
    for (const [name, batches] of Object.entries(lists)) {
      system.stdout(`,"${name}":[`);
      let separator = "\n";
      for await (const batch of batches) {
        const lines = batch.map((record) => JSON.stringify(record));
        system.stdout(separator + lines.join(",\n"));
        separator = ",\n";
      }
      system.stdout("\n]");
    }
    system.stdout("}\n");
  });
}

/** Overwrites what can hold data of a person. A server may be running. It can be repeated. */
export async function erasePerson(system: CommandSystem, person: string): Promise<void> {
  const { id, count } = await withStore(system, {}, async (store) => {
    const user = await findUser(store, person);
    const { id } = user;
    // An order can have been moved to another user since it was read.
    const erase = (order: Order) =>
      order.user_id === id ? patchOrder(order, { metadata: null }) : order;
    let count = 0;
    for await (const batch of ordersOf(store, user)) {
      await Promise.all(batch.map((order) => store.orders.update(order.id, erase, null)));
      count += batch.length;
    }
    // At last: the email finds the user when the command is repeated after an interruption.
    const erased = await store.users.update(id, eraseUser, null);
    if (erased !== null) await store.replaceResults(erased);
    return { id, count };
  });
  const erased = `Erased user ${id} and the metadata of ${formatCount(count, "order")}`;
  system.stdout(`${erased}. Note the id, to repeat it after a restore of an older backup\n`);
  // docs/personal-data.md has the details.
  const kept = "references, items of orders, backups, exports, the archive and logs";
  system.stdout(`Not erased: ${kept}\n`);
}
