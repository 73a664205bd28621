/** Calls from seeds. There are few emails and references, so that most calls have something to do with others. */
import { sorts } from "../../../src/domain/page.ts";
import { randomOf } from "../clock.ts";
import type { Call, Import, Read, Row, State, Table, Write } from "./reference.ts";
import { statuses, timeOf } from "./reference.ts";
import { DAY_MS } from "./steps.ts";

const emails = ["ann@b.cd", "Ann@B.CD", "bob@b.cd", "cy@b.cd"];
const sameMailbox = ["änn@exämple.com", "A\u0308NN@xn--exmple-cua.com"];
const references = ["r1", "R1", "r2", "r3", "r4"];
const times = ["2020-01-01T00:00:00.000Z", "2021-01-01T00:00:00.000Z"];

/**
 * @param sent earlier writes with keys
 * @param hasTimes whether an import may have times, which can be compared if the clock is that of the test
 */
export function callOf(
  seed: number,
  state: State,
  sent: readonly Write[],
  hasTimes: boolean,
): Call {
  const random = randomOf(seed, "call");
  const chance = (percent: number) => random(100) < percent;
  const pick = <Item>(items: readonly Item[]) => items[random(items.length)] as Item;
  const some = (fields: Row): Row =>
    Object.fromEntries(Object.entries(fields).filter(() => chance(40)));
  const anyOf = (table: Table): Row | undefined => pick([...state[table].values()]);
  const idOf = (table: Table): number =>
    (chance(92) && anyOf(table)?.id) || state.lastIds[table] + 1 + random(2);
  const email = () => pick([...emails, ...sameMailbox, `${random(1_000_000)}@b.cd`]);
  const reference = () => pick([...references, null]);
  const metadata = () => pick<Row>([{}, { a: "1" }, { b: "2", a: "1" }]);
  const name = () => pick([null, "Ann", `${random(1_000_000)}`]);
  const newOrder = () => {
    const quantity = 1 + random(2);
    return { currency: pick(["EUR", "USD"]), items: [{ sku: "A", quantity, unit_price: 100 }] };
  };
  const totalOf = (order: Row | undefined): number => (order?.items[0].quantity ?? 1) * 100;

  function write(method: Write["method"], table: Table, body: Row): Write {
    const id = method === "POST" ? 0 : idOf(table);
    const version = (state[table].get(id)?.version ?? 1) - Number(chance(40));
    const ifMatch = method !== "POST" && chance(25) ? version : null;
    const call: Write = { kind: "write", method, table, id, body, key: null, ifMatch };
    if (!chance(40)) return call;
    const earlier = pick(sent);
    if (earlier === undefined || chance(50)) return { ...call, key: `k${seed}` };
    return chance(70) ? earlier : { ...call, key: earlier.key };
  }

  function update(table: Table): Write {
    const patch = pick<Row | null>([null, { a: null }, { a: "2" }, { b: "2", c: "3" }]);
    const shared = { reference: reference(), metadata: patch };
    if (table === "users")
      return write("PATCH", table, some({ email: email(), name: name(), ...shared }));
    const refunded = pick([0, 50, 100, 150, 250]);
    const status = pick(["paid", "shipped", "delivered", ...statuses]);
    const fields = { refunded, user_id: idOf("users"), ...shared };
    return write("PATCH", table, { ...(chance(60) && { status }), ...some(fields) });
  }

  function userLine(): Row {
    const known = anyOf("users");
    const more = some({
      name: name(),
      metadata: metadata(),
      ...(hasTimes && { created_at: pick(times) }),
    });
    if (known === undefined || chance(40))
      return { email: email(), ...some({ reference: reference() }), ...more };
    const changed = some({ email: email(), reference: reference(), name: name() });
    if (hasTimes && chance(40))
      return { ...known, ...(chance(30) && { id: state.lastIds.users + 10 }), ...changed };
    return { email: known.email, reference: known.reference, ...changed, ...more };
  }

  function orderLine(): Row {
    const known = anyOf("orders");
    const owner = anyOf("users");
    const { items, currency } = known !== undefined && chance(60) ? known : newOrder();
    const total = totalOf({ items });
    const changed = some({
      status: pick(statuses),
      refunded: pick([0, 50, 100]),
      metadata: metadata(),
    });
    if (hasTimes && known !== undefined && chance(30))
      return {
        ...known,
        ...(chance(30) && { id: state.lastIds.orders + 10 }),
        ...changed,
        ...some({ reference: reference() }),
      };
    const user = pick([
      { user_id: idOf("users") },
      { user_email: owner?.email ?? "ann@b.cd" },
      { user_reference: owner?.reference ?? "r1" },
    ]);
    const created = hasTimes ? some({ created_at: pick(times) }) : {};
    const given = pick([known?.reference, pick(references)]) ?? "r1";
    return { ...user, currency, reference: given, items, total, ...changed, ...created };
  }

  /** Users who exchange their emails. */
  function exchange(): Row[] {
    const users = [...state.users.values()].filter((user) => user.reference !== null).slice(0, 3);
    return users.map(({ reference }, at) => ({ reference, email: users.at(at - 1)?.email }));
  }

  function importOf(table: Table): Import {
    const line = table === "users" ? userLine : orderLine;
    // So many that the counts of SQLite have several buckets.
    if (chance(4)) {
      const lines = Array.from({ length: 130 }, (_, at) => {
        const key = `${seed}.${at}@b.cd`;
        const order = { user_id: idOf("users"), ...newOrder(), status: pick(statuses) };
        return table === "users"
          ? { email: key }
          : { ...order, total: totalOf(order), reference: key };
      });
      return { kind: "import", table, lines, update: false, dryRun: false };
    }
    const lines = Array.from({ length: 1 + random(4) }, line);
    if (table === "users" && chance(30)) lines.push(...exchange());
    if (chance(30)) lines.push(pick(lines));
    const different = table === "users" ? { name: name() } : { metadata: metadata() };
    if (chance(20)) lines.push({ ...pick(lines), ...different });
    return { kind: "import", table, lines, update: chance(70), dryRun: chance(20) };
  }

  function timeNear(): string {
    const time = pick([...times, anyOf("orders")?.["created_at"] ?? pick(times)]);
    return timeOf(Date.parse(time) + random(2));
  }

  function read(): Read {
    const table = pick<Read["table"]>(["users", "orders", "orders", "changes"]);
    const limit = pick([1, 2, 3, 1000]);
    const offset = pick([0, 1, random(state[table === "changes" ? "orders" : table].size + 3)]);
    if (table === "changes") {
      const after = pick([0, random(state.lastChange + 2)]);
      const place = chance(50) ? { offset } : { offset: 0, after };
      return {
        kind: "list",
        table,
        query: { limit, ...place, ...(chance(50) && { include: "record" }) },
      };
    }
    if (table === "orders" && hasTimes && chance(20)) {
      const [from = "", to = ""] = [timeNear(), timeNear()].sort();
      const interval =
        Date.parse(to) - Date.parse(from) < 364 * DAY_MS ? pick(["day", "month"]) : "month";
      const zone = pick(["UTC", "Asia/Tokyo", "Pacific/Honolulu"]);
      const query = { created_from: from, created_to: to, interval, time_zone: zone };
      return { kind: "sum", table, query };
    }
    if (chance(20)) return { kind: "get", table, query: { id: idOf(table) } };
    const isHistory = chance(20);
    const after = isHistory ? random(state.lastChange + 2) : pick([0, idOf(table), idOf(table)]);
    const place = chance(50) ? { offset } : { offset: 0, after };
    if (isHistory) {
      const query = { id: idOf(table), limit, ...place, ...some({ sort: pick(sorts) }) };
      return { kind: "history", table, query };
    }
    const ids = [...new Set([idOf(table), idOf(table), idOf(table)])];
    const ofTable = table === "users" ? { email: email() } : { user_id: idOf("users") };
    const filter = pick<Row>([{}, {}, { id: ids }, { reference: pick(references) }, ofTable]);
    const status = [...new Set([pick(statuses), pick(statuses), pick(statuses)])];
    const [createdFrom, createdTo] = [timeNear(), timeNear()].sort();
    const ofOrders = {
      status,
      ...(hasTimes && { created_from: createdFrom, created_to: createdTo }),
    };
    return {
      kind: "list",
      table,
      query: {
        ...{ limit, ...place, ...filter },
        ...some({ sort: pick(sorts), ...(table === "orders" && ofOrders) }),
      },
    };
  }

  const fields = { reference: reference(), metadata: metadata() };
  const user = { email: email(), ...some({ name: name(), ...fields }) };
  const order = { user_id: idOf("users"), ...newOrder(), ...some(fields) };
  // Most calls are about records that exist.
  const isEmpty = [state.users.size < 2, state.orders.size < 2 && chance(60)];
  const kind = isEmpty.includes(true) ? 12 * isEmpty.indexOf(true) : random(100);
  if (kind < 12) return write("POST", "users", user);
  if (kind < 26) return write("POST", "orders", order);
  if (kind < 60) return update(kind < 37 ? "users" : "orders");
  if (kind < 66) return write("PUT", "users", user);
  if (kind < 72) return write("DELETE", "users", {});
  return kind < 82 ? importOf(kind < 78 ? "users" : "orders") : read();
}
