/** Clients that create and change records at random. @see changes-model.ts */
import { orderStatuses } from "../../src/domain/order.ts";
import { type Client, count, nameOf, type Row } from "./changes-verification.ts";

/** Clients change the newest records of each table, this many, so that most of them change at the same time. */
const CONTENDED = 8;

export const pick = <Item>(items: readonly Item[]): Item | undefined =>
  items[Math.floor(Math.random() * items.length)];

/**
 * Sends a write. With a key, it is repeated until there is a response, and sometimes once more.
 * @returns the record of a successful response; `null` if the request was rejected, or may have been carried out
 */
async function write(
  { url, token, known }: Client,
  method: string,
  path: string,
  body?: object,
): Promise<Row | null> {
  const [, table = "", id] = path.split("/");
  const kind = table.slice(0, -1);
  // Writes with and without a key are different statements.
  const hasKey = Math.random() < 0.5;
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    ...(hasKey && { "idempotency-key": crypto.randomUUID() }),
  };
  const content = body === undefined ? null : JSON.stringify(body);
  /** @returns `null` if it may have been carried out */
  async function send() {
    try {
      const response = await fetch(`${url()}/api/v1${path}`, { method, headers, body: content });
      const text = await response.text();
      if (response.status === 503) {
        if (response.headers.get("retry-after") === null) known.wrong.push(`${path}: ${text}`);
        return null;
      }
      return { status: response.status, text, headers: response.headers };
    } catch {
      return null;
    }
  }
  const first = await send();
  let response = first;
  while (response === null && hasKey) {
    await Bun.sleep(5);
    response = await send();
  }
  // The deletion of a user also deletes what keys have of it.
  const isForgotten = first === null && response?.status === 404;
  if (response === null || isForgotten) {
    count(known.inDoubt, id === undefined ? kind : `${kind} ${id}`);
    await Bun.sleep(5);
    return null;
  }
  const { status, text } = response;
  // Emails and references are unique: one that is taken was created by the same request before, and its key is lost.
  const isLost = status === 409 && method === "POST";
  if (status >= 500 || status === 422 || isLost)
    known.wrong.push(`${method} ${path}: ${status} ${text}`);
  if (status >= 300) return null;
  const { data } = JSON.parse(text) as { data: Row };
  const state = method === "DELETE" ? "deleted" : (data["status"] ?? null);
  const name = nameOf(kind, data["id"], data["version"], state);
  // A request that changes nothing returns the same record again.
  if (!Bun.deepEquals(known.acknowledged.get(name) ?? data, data))
    known.wrong.push(`acknowledged with another content: ${name} ${text}`);
  known.acknowledged.set(name, data);
  if (hasKey && Math.random() < 0.3) {
    const again = await send();
    const isReplay = again?.text === text && again.headers.has("idempotent-replayed");
    const isDeleted = again?.status === 404 && kind === "user";
    if (again !== null && !isReplay && !isDeleted)
      known.wrong.push(`replay of ${text}: ${again.text}`);
  }
  return data;
}

/** Creates records until the time is over, and changes those that all clients change. */
export async function changeRecords(
  client: Client,
  users: number[],
  orders: number[],
): Promise<void> {
  const keep = (ids: number[], row: Row | null) => {
    if (row !== null) ids.push(row["id"]);
    if (ids.length > CONTENDED) ids.shift();
  };
  const email = () => `${crypto.randomUUID()}@example.com`;
  while (!client.isOver()) {
    const user = pick(users) ?? 0;
    const order = pick(orders) ?? 0;
    const turn = Math.random();
    const reference = Math.random() < 0.5 ? null : crypto.randomUUID();
    if (turn < 0.2)
      keep(users, await write(client, "POST", "/users", { email: email(), reference }));
    else if (turn < 0.3) {
      const items = [{ sku: crypto.randomUUID(), quantity: 1, unit_price: 100 }];
      const fields = { user_id: user, currency: "EUR", reference, items };
      keep(orders, await write(client, "POST", "/orders", fields));
    } else if (turn < 0.55) await write(client, "PATCH", `/users/${user}`, { name: email() });
    else if (turn < 0.6) await write(client, "PATCH", `/users/${user}`, {});
    else if (turn < 0.7) await write(client, "PUT", `/users/${user}`, { email: email() });
    else if (turn < 0.75) await write(client, "DELETE", `/users/${user}`);
    else {
      const changes = [
        { status: pick(orderStatuses) },
        { refunded: Math.floor(Math.random() * 110), metadata: { note: email() } },
        { user_id: user },
        { reference },
      ];
      await write(client, "PATCH", `/orders/${order}`, pick(changes));
    }
  }
}
