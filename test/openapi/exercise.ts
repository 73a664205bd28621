/** What clients do with the API: create records whose texts are at their bounds in emoji, and read all of them. */
import { expect } from "bun:test";
import type { OrderInput } from "../../src/domain/order.ts";
import type { PageQuery } from "../../src/domain/page.ts";
import type { UserInput } from "../../src/domain/user.ts";

type Identified = { readonly id: number };
type Created = Promise<{ readonly data: Identified }>;
type Page = { readonly data: readonly Identified[]; readonly meta: { readonly total: number } };
type List = (query: Partial<PageQuery> & { readonly id?: number[] }) => Promise<Page>;

export interface Client {
  createUser(body: UserInput): Created;
  createOrder(body: OrderInput & { readonly currency: "EUR" }): Created;
  readonly listUsers: List;
  readonly listOrders: List;
}

const emoji = (count: number) => "😀".repeat(count);

/** Expects that a list has the records by several ids, and at the end of all pages. */
async function expectList(list: List, newest: readonly Identified[]): Promise<void> {
  const [first, , last] = newest as [Identified, Identified, Identified];
  expect((await list({ id: [last.id, first.id] })).data).toMatchObject([first, last]);
  const read: Identified[] = [];
  let page: Page;
  do {
    page = await list({ limit: 2, after: read.at(-1)?.id ?? 0 });
    read.push(...page.data);
  } while (page.data.length > 0);
  expect(read).toHaveLength(page.meta.total);
  expect(read.slice(-newest.length)).toMatchObject([...newest]);
}

/** @param connectLater to another server with the same records */
export async function expectRecords(client: Client, connectLater = async () => client) {
  const users: Identified[] = [];
  const orders: Identified[] = [];
  const metadata = { [emoji(40)]: emoji(500), note: `${"n".repeat(499)}😀` };
  for (let count = 0; count < 3; count += 1) {
    const unique = crypto.randomUUID(); // 36 characters
    const texts = { reference: emoji(219) + unique, metadata };
    const user = { email: `${emoji(206)}${unique}@example.com`, name: emoji(200), ...texts };
    const { id } = (await client.createUser(user)).data;
    users.push({ id, ...user });
    const items = [{ sku: emoji(64), name: emoji(200), quantity: 1, unit_price: 2 ** 53 - 1 }];
    const order = { user_id: id, items, ...texts };
    const { data } = await client.createOrder({ currency: "EUR", ...order });
    orders.push({ id: data.id, ...order });
  }
  for (const connect of [async () => client, connectLater]) {
    const { listUsers, listOrders } = await connect();
    await expectList(listUsers, users);
    await expectList(listOrders, orders);
  }
}
