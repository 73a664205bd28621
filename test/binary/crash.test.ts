// Kills the server at random moments while clients write, restarts it, and compares its records with the
// acknowledged ones. The page cache survives a killed process: sync.test.ts tests the disk.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { orderStatuses } from "../../src/domain/order.ts";
import { newEmail, newUser } from "../http/make.ts";
import { againstBinary, startServer, type TestResponse, type TestServer } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { makeRandom } from "../support/random.ts";

const ROUNDS = isLong ? 20 : 5;
const CLIENTS = 16;
/** Users with orders. Few, so that each has a long list. */
const BUYERS = 12;
/** Duration of a round. */
const [MIN_ROUND_MS, MAX_ROUND_MS] = [30, 150];
/** Page size when reading whole lists. Odd, so that the last page is rarely full. */
const LIMIT = 333;

/** Determines the moments and the random choices, but not how requests interleave. */
const seed = Number(Bun.env["CRASH_SEED"] ?? 1 + Math.floor(Math.random() * (2 ** 32 - 1)));

type Row = Record<string, any>;
type Kind = "users" | "orders";

/** The fields that a request changes; `null` if it deletes the record. */
type Change = Row | null;

interface Known {
  /** The highest acknowledged version. */
  row: Row;
  /** All acknowledged versions. No two edits may get the same one. */
  readonly versions: Set<number>;
  gone: boolean;
  /** Changes without a response. Each may have been applied. */
  open: Change[];
}

/** Creates without a response, by their unique value: the email or the key. */
type Attempts = Map<string, Row>;

interface Model {
  readonly users: Map<number, Known>;
  readonly orders: Map<number, Known>;
  readonly attempts: Record<Kind, Attempts>;
  /** Idempotency key → body of the first response. */
  readonly keyed: Map<string, string>;
  /** Number of acknowledged writes by kind, and of requests without a response. */
  readonly counts: Record<string, number>;
}

function markOf(kind: Kind, row: Row): string {
  return kind === "users" ? row["email"] : row["metadata"].key;
}

function learn(known: Map<number, Known>, row: Row): void {
  expect(known.has(row["id"]), `id ${row["id"]} was assigned twice`).toBe(false);
  known.set(row["id"], { row, versions: new Set([row["version"]]), gone: false, open: [] });
}

function count(model: Model, what: string): void {
  model.counts[what] = (model.counts[what] ?? 0) + 1;
}

/** Like `server.call`; returns `null` if the server was killed before it responded. */
type Call = (...request: Parameters<TestServer["call"]>) => Promise<TestResponse | null>;

/** @returns a function that sends a random write and checks the response */
function writerOf(call: Call, model: Model, random: () => number): () => Promise<void> {
  const pick = <Item>(list: readonly Item[]) => list[Math.floor(random() * list.length)] as Item;
  const buyers = [...model.users.values()].slice(0, BUYERS);

  async function create(kind: Kind, mark: string, body: Row, headers: Record<string, string>) {
    model.attempts[kind].set(mark, body);
    const response = await call("POST", `/${kind}`, { body, headers });
    if (response === null) return null;
    expect(response.status, response.text).toBe(201);
    expect(response.headers.has("idempotent-replayed")).toBe(false);
    model.attempts[kind].delete(mark);
    learn(model[kind], response.json.data);
    count(model, `create ${kind}`);
    return response;
  }

  async function change(kind: Kind, known: Known, method: string, body: Row | undefined) {
    const { id, version } = known.row;
    const wanted: Change = body ?? null;
    known.open.push(wanted);
    // Fails with 412 if another client was faster.
    const headers = { "if-match": `"${version}"` };
    const options = body === undefined ? { headers } : { headers, body };
    const response = await call(method, `/${kind}/${id}`, options);
    if (response === null) return;
    known.open.splice(known.open.indexOf(wanted), 1);
    expect([200, 404, 412], response.text).toContain(response.status);
    count(model, `${method} ${kind} ${response.status}`);
    if (response.status !== 200) return;
    const row = response.json.data;
    if (wanted === null) {
      expect(row).toEqual(known.row);
      known.gone = true;
    } else {
      expect(row).toMatchObject({ id, ...wanted, version: version + 1 });
      expect(known.versions.has(row.version), `version ${row.version} of ${id} twice`).toBe(false);
      known.versions.add(row.version);
      if (row.version > known.row["version"]) known.row = row;
    }
  }

  /** Picks mostly a recent record, so that clients compete for it. */
  function pickKnown(kind: Kind): Known | undefined {
    const all = [...model[kind].values()].slice(kind === "users" ? BUYERS : 0);
    const here = all.filter(({ gone }) => !gone);
    return pick(random() < 0.7 ? here.slice(-2 * CLIENTS) : here);
  }

  async function createUser() {
    const body = { email: newEmail(), name: `Ünïcode ${random()}`, metadata: { a: "1" } };
    await create("users", body.email, body, {});
  }

  async function createOrder() {
    const key = crypto.randomUUID();
    const items = [{ sku: "A-1", quantity: 1 + Math.floor(random() * 9), unit_price: 100 }];
    const body = { user_id: pick(buyers).row["id"], currency: "EUR", items, metadata: { key } };
    const response = await create("orders", key, body, { "idempotency-key": key });
    if (response !== null) model.keyed.set(key, response.text);
  }

  async function editUser() {
    const known = random() < 0.2 ? pick(buyers) : pickKnown("users");
    if (known !== undefined) await change("users", known, "PATCH", { name: `Edit ${random()}` });
  }

  async function removeUser() {
    const known = pickKnown("users");
    if (known !== undefined) await change("users", known, "DELETE", undefined);
  }

  async function stepOrder() {
    const known = pickKnown("orders");
    const next: Record<string, string[]> = {
      pending: ["paid", "canceled"],
      paid: ["shipped", "canceled"],
      shipped: ["delivered"],
    };
    const steps = next[known?.row["status"]];
    if (known !== undefined && steps !== undefined) {
      await change("orders", known, "PATCH", { status: pick(steps) });
    }
  }

  const mix = [createUser, createUser, createUser, createOrder, createOrder, editUser, editUser];
  return () => pick([...mix, stepOrder, stepOrder, removeUser])();
}

/** Sends writes from all clients, and kills the server after some time. */
async function writeAndKill(
  server: TestServer,
  model: Model,
  random: () => number,
  afterMs: number,
): Promise<void> {
  let killed = false;
  const write = writerOf(
    async (...request) => {
      try {
        return await server.call(...request);
      } catch (error) {
        if (!killed) throw error;
        count(model, "without a response");
        return null;
      }
    },
    model,
    random,
  );
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!killed) await write();
  });
  const ended = Promise.all(clients);
  await Promise.race([Bun.sleep(afterMs), ended]);
  killed = true;
  await server.stop("SIGKILL");
  await ended;
}

/** @returns all rows of a list, page by page. The total must be exact. */
async function walk(server: TestServer, path: string): Promise<Row[]> {
  const rows: Row[] = [];
  for (;;) {
    const query = `${path.includes("?") ? "&" : "?"}limit=${LIMIT}&offset=${rows.length}`;
    const { json, text, status } = await server.call("GET", path + query);
    expect(status, text).toBe(200);
    rows.push(...json.data);
    if (json.data.length === LIMIT) continue;
    expect(json.meta.total, path).toEqual(rows.length);
    const ids = rows.map(({ id }) => id);
    expect(ids).toEqual([...new Set(ids)].sort((one, other) => one - other));
    return rows;
  }
}

/** Expects a record as last acknowledged, or as changed by requests without a response. */
function expectPossible(known: Known, row: Row | undefined): void {
  const { row: acknowledged, gone, open } = known;
  const what = `${JSON.stringify(known.row)} gone: ${gone}, open: ${JSON.stringify(open)}`;
  if (row === undefined) {
    expect(gone || open.includes(null), `lost: ${what}`).toBe(true);
    return;
  }
  expect(gone, `came back: ${what}`).toBe(false);
  const edits = open.filter((change) => change !== null);
  const behind = row["version"] - acknowledged["version"];
  expect(behind, `its version: ${what}`).toBeWithin(0, edits.length + 1);
  if (behind === 0) {
    expect(row, what).toEqual(acknowledged);
    return;
  }
  const { version, updated_at } = row;
  const possible: Row[] = edits.map((edit) => ({ ...acknowledged, ...edit, version, updated_at }));
  expect(possible, what).toContainEqual(row);
}

/** Expects every acknowledged record, and that other creates are complete or absent. */
async function checkRecords(server: TestServer, model: Model, kind: Kind, rows: readonly Row[]) {
  const served = new Map(rows.map((row) => [row["id"], row]));
  const marks = rows.map((row) => markOf(kind, row));
  expect(marks.length).toBe(new Set(marks).size);
  for (const [id, known] of model[kind]) {
    const row = served.get(id);
    expectPossible(known, row);
    known.gone = row === undefined;
    known.row = row ?? known.row;
    known.versions.add(known.row["version"]);
  }
  for (const row of rows) {
    if (model[kind].has(row["id"])) continue;
    const mark = markOf(kind, row);
    const attempt = model.attempts[kind].get(mark);
    expect(attempt, `nobody sent ${JSON.stringify(row)}`).toBeDefined();
    expect(row).toMatchObject({ ...attempt, version: 1 });
    learn(model[kind], row);
    count(model, `${kind} without a response found`);
  }
  // The most recent records are also read one by one.
  const last = [...model[kind].values()].slice(-10 * CLIENTS);
  const touched = [...model[kind].values()].filter(({ open }) => open.length > 0);
  await Promise.all(
    [...last, ...touched].map(async ({ row, gone }) => {
      const response = await server.call("GET", `/${kind}/${row["id"]}`);
      expect([row["id"], response.status]).toEqual([row["id"], gone ? 404 : 200]);
      if (gone) return;
      expect(response.json.data).toEqual(row);
      expect(response.headers.get("etag")).toBe(`"${row["version"]}"`);
    }),
  );
  for (const known of model[kind].values()) known.open = [];
}

/** Expects that each filtered list is the matching part of the whole list. */
async function checkOrderLists(server: TestServer, model: Model, orders: readonly Row[]) {
  const buyers = [...model.users.keys()].slice(0, BUYERS);
  const lists: [string, string, readonly (string | number)[]][] = [
    ["status", "/orders?status=", orderStatuses],
    ["user_id", "/orders?user_id=", buyers],
  ];
  for (const [field, path, values] of lists) {
    for (const value of values) {
      const wanted = orders.filter((order) => order[field] === value);
      expect(await walk(server, path + value)).toEqual(wanted);
    }
  }
}

function placeOrder(server: TestServer, key: string, body: Row): Promise<TestResponse> {
  return server.call("POST", "/orders", { body, headers: { "idempotency-key": key } });
}

/** Expects one order per key, however often it is sent, and whether or not there was a response. */
async function retryOrders(server: TestServer, model: Model): Promise<void> {
  const served = [...model.orders.values()].map(({ row }): [string, number] => [
    row["metadata"].key,
    row["id"],
  ]);
  const ids = new Map(served);
  for (const [key, body] of model.attempts.orders) {
    const response = await placeOrder(server, key, body);
    expect([response.status, response.text]).toEqual([201, expect.any(String)]);
    const id = ids.get(key);
    expect(response.headers.get("idempotent-replayed")).toBe(id === undefined ? null : "true");
    if (id === undefined) learn(model.orders, response.json.data);
    else expect(response.json.data.id).toBe(id);
    model.keyed.set(key, response.text);
  }
  for (const [key, text] of [...model.keyed].slice(-20)) {
    const { user_id, currency, items, metadata } = JSON.parse(text).data;
    const response = await placeOrder(server, key, { user_id, currency, items, metadata });
    expect([response.status, response.text]).toEqual([201, text]);
    expect(response.headers.get("idempotent-replayed")).toBe("true");
  }
  model.attempts.orders.clear();
  model.attempts.users.clear();
}

/** Called while the server runs, which must have recovered the file. */
function checkFile(path: string): void {
  using db = new Database(path, { readonly: true });
  expect(db.query("pragma integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
  expect(db.query("pragma foreign_key_check").all()).toEqual([]);
}

async function check(server: TestServer, model: Model): Promise<void> {
  const [users, orders] = [await walk(server, "/users"), await walk(server, "/orders")];
  await checkRecords(server, model, "users", users);
  await checkRecords(server, model, "orders", orders);
  await checkOrderLists(server, model, orders);
  checkFile(server.database);
  await retryOrders(server, model);
}

test.skipIf(!againstBinary)(
  "acknowledged writes are stored exactly once when the server is killed under load",
  async () => {
    const below = makeRandom(seed);
    const random = () => below(2 ** 32) / 2 ** 32;
    await using server = await startServer();
    const counts: Record<string, number> = {};
    const attempts = { users: new Map(), orders: new Map() };
    const model: Model = {
      users: new Map(),
      orders: new Map(),
      attempts,
      keyed: new Map(),
      counts,
    };
    for (let buyer = 0; buyer < BUYERS; buyer += 1) learn(model.users, await newUser(server));

    // Fewer of them would test too little. On a busy machine that takes more rounds.
    const kinds = ["create users", "create orders", "PATCH users 200", "PATCH orders 200"];
    const done = [...kinds, "DELETE users 200", "without a response"];
    const isEnough = () => done.every((kind) => (counts[kind] ?? 0) > ROUNDS);
    for (let round = 1; round <= ROUNDS || !isEnough(); round += 1) {
      const afterMs = Math.round(MIN_ROUND_MS + random() * (MAX_ROUND_MS - MIN_ROUND_MS));
      try {
        await writeAndKill(server, model, random, afterMs);
        await server.restart();
        await check(server, model);
      } catch (cause) {
        const where = `round ${round}, killed after ${afterMs} ms, CRASH_SEED=${seed}`;
        throw new Error(`${where}: ${cause instanceof Error ? cause.message : cause}`, { cause });
      }
    }
    // Includes the last retries.
    await check(server, model);
  },
  60_000,
);
