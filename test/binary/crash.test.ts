// Kills the program at random moments while clients write, and compares what it then serves with
// what it had acknowledged. The page cache outlives a killed process: see sync.test.ts for the disk.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { order_statuses } from "../../src/order.ts";
import { newEmail, newUser } from "../http/make.ts";
import { against_binary, startServer, type TestResponse, type TestServer } from "../http/server.ts";

const ROUNDS = 20;
const CLIENTS = 16;
/** Users whom the orders belong to, so that each has a list worth counting. */
const BUYERS = 12;
/** From the first request of a round to its end. */
const [SHORTEST_MS, MAX_WAIT_MS] = [30, 150];
/** Of a walk over a list: odd, so that the last page is seldom full. */
const PAGE = 333;

/** The moments and the choices; how the requests interleave is up to the machine. */
const seed = Number(Bun.env["CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32));

/** @returns numbers from 0 to below 1; mulberry32, since `Math.random` takes no seed */
function randomOf(start: number): () => number {
  let state = start | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Row = Record<string, any>;
type Kind = "users" | "orders";

/** What a request would make of a record; `null`, that it is gone. */
type Change = Row | null;

interface Known {
  /** Of the highest version that was acknowledged. */
  row: Row;
  /** Every version that was acknowledged: no two edits may be told the same. */
  readonly versions: Set<number>;
  gone: boolean;
  /** Sent and not answered: each may have happened. */
  open: Change[];
}

/** A create that was sent and not answered, by its mark: the email or the key. */
type Attempts = Map<string, Row>;

interface Model {
  readonly users: Map<number, Known>;
  readonly orders: Map<number, Known>;
  readonly attempts: Record<Kind, Attempts>;
  /** Key → body of the first answer. */
  readonly keyed: Map<string, string>;
  /** How often each kind of write was acknowledged, and how many were not. */
  readonly counts: Record<string, number>;
}

function markOf(kind: Kind, row: Row): string {
  return kind === "users" ? row["email"] : row["metadata"].key;
}

function learn(known: Map<number, Known>, row: Row): void {
  expect(known.has(row["id"]), `id ${row["id"]} was given twice`).toBe(false);
  known.set(row["id"], { row, versions: new Set([row["version"]]), gone: false, open: [] });
}

function count(model: Model, what: string): void {
  model.counts[what] = (model.counts[what] ?? 0) + 1;
}

/** As `server.call`; `null` when the program was killed before it had answered. */
type Call = (...request: Parameters<TestServer["call"]>) => Promise<TestResponse | null>;

/** What a client does again and again: one write, chosen at random, and a look at the answer. */
function writerOf(call: Call, model: Model, random: () => number): () => Promise<void> {
  const pick = <Item>(list: readonly Item[]) => list[Math.floor(random() * list.length)] as Item;
  const buyers = [...model.users.values()].slice(0, BUYERS);

  async function create(kind: Kind, mark: string, body: Row, headers: Record<string, string>) {
    model.attempts[kind].set(mark, body);
    const answer = await call("POST", `/${kind}`, { body, headers });
    if (answer === null) return null;
    expect(answer.status, answer.text).toBe(201);
    expect(answer.headers.has("idempotent-replayed")).toBe(false);
    model.attempts[kind].delete(mark);
    learn(model[kind], answer.json.data);
    count(model, `create ${kind}`);
    return answer;
  }

  async function change(kind: Kind, known: Known, method: string, body: Row | undefined) {
    const { id, version } = known.row;
    const wanted: Change = body ?? null;
    known.open.push(wanted);
    // Others may have been faster: then nothing changes.
    const headers = { "if-match": `"${version}"` };
    const options = body === undefined ? { headers } : { headers, body };
    const answer = await call(method, `/${kind}/${id}`, options);
    if (answer === null) return;
    known.open.splice(known.open.indexOf(wanted), 1);
    expect([200, 404, 412], answer.text).toContain(answer.status);
    count(model, `${method} ${kind} ${answer.status}`);
    if (answer.status !== 200) return;
    const row = answer.json.data;
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

  /** Mostly one of the last: they are still to be written, and others pick them as well. */
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
    const answer = await create("orders", key, body, { "idempotency-key": key });
    if (answer !== null) model.keyed.set(key, answer.text);
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

/** Writes from all clients at once until the program is killed under them. */
async function writeAndKill(
  server: TestServer,
  model: Model,
  random: () => number,
  after_ms: number,
): Promise<void> {
  let killed = false;
  const write = writerOf(
    async (...request) => {
      try {
        return await server.call(...request);
      } catch (error) {
        if (!killed) throw error;
        count(model, "unanswered");
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
  await Promise.race([Bun.sleep(after_ms), ended]);
  killed = true;
  await server.stop("SIGKILL");
  await ended;
}

/** All rows of a list, over all its pages; each must tell the same exact total. */
async function walk(server: TestServer, path: string): Promise<Row[]> {
  const rows: Row[] = [];
  for (;;) {
    const query = `${path.includes("?") ? "&" : "?"}limit=${PAGE}&offset=${rows.length}`;
    const { json, text, status } = await server.call("GET", path + query);
    expect(status, text).toBe(200);
    rows.push(...json.data);
    if (json.data.length === PAGE) continue;
    expect([path, json.meta.total]).toEqual([path, rows.length]);
    const ids = rows.map(({ id }) => id);
    expect(ids).toEqual([...new Set(ids)].sort((one, other) => one - other));
    return rows;
  }
}

/** A record must be as last acknowledged, or as requests without an answer may have left it. */
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

/** What is served is what was acknowledged, and what was not is there whole or not at all. */
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
    count(model, `unanswered ${kind} found`);
  }
  // The last, which the crash was about, also by themselves.
  const last = [...model[kind].values()].slice(-10 * CLIENTS);
  const touched = [...model[kind].values()].filter(({ open }) => open.length > 0);
  await Promise.all(
    [...last, ...touched].map(async ({ row, gone }) => {
      const answer = await server.call("GET", `/${kind}/${row["id"]}`);
      expect([row["id"], answer.status]).toEqual([row["id"], gone ? 404 : 200]);
      if (gone) return;
      expect(answer.json.data).toEqual(row);
      expect(answer.headers.get("etag")).toBe(`"${row["version"]}"`);
    }),
  );
  for (const known of model[kind].values()) known.open = [];
}

/** Each filtered list is what the whole list has of it. */
async function checkOrderLists(server: TestServer, model: Model, orders: readonly Row[]) {
  const buyers = [...model.users.keys()].slice(0, BUYERS);
  const lists: [string, string, readonly (string | number)[]][] = [
    ["status", "/orders?status=", order_statuses],
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

/** A keyed order makes exactly one, however often it is sent, and whether it was answered or not. */
async function retryOrders(server: TestServer, model: Model): Promise<void> {
  const served = [...model.orders.values()].map(({ row }): [string, number] => [
    row["metadata"].key,
    row["id"],
  ]);
  const ids = new Map(served);
  for (const [key, body] of model.attempts.orders) {
    const answer = await placeOrder(server, key, body);
    expect([answer.status, answer.text]).toEqual([201, expect.any(String)]);
    const id = ids.get(key);
    expect(answer.headers.get("idempotent-replayed")).toBe(id === undefined ? null : "true");
    if (id === undefined) learn(model.orders, answer.json.data);
    else expect(answer.json.data.id).toBe(id);
    model.keyed.set(key, answer.text);
  }
  for (const [key, text] of [...model.keyed].slice(-20)) {
    const { user_id, currency, items, metadata } = JSON.parse(text).data;
    const answer = await placeOrder(server, key, { user_id, currency, items, metadata });
    expect([answer.status, answer.text]).toEqual([201, text]);
    expect(answer.headers.get("idempotent-replayed")).toBe("true");
  }
  model.attempts.orders.clear();
  model.attempts.users.clear();
}

/** With the server up: it, not we, must have recovered the file. */
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

test.skipIf(!against_binary)(
  "Acknowledged writes are stored exactly once when the server is killed under load",
  async () => {
    const random = randomOf(seed);
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

    for (let round = 1; round <= ROUNDS; round += 1) {
      const after_ms = Math.round(SHORTEST_MS + random() * (MAX_WAIT_MS - SHORTEST_MS));
      try {
        await writeAndKill(server, model, random, after_ms);
        await server.restart();
        await check(server, model);
      } catch (cause) {
        const where = `round ${round}, killed after ${after_ms} ms, CRASH_SEED=${seed}`;
        throw new Error(`${where}: ${cause instanceof Error ? cause.message : cause}`, { cause });
      }
    }
    // What the last retries made.
    await check(server, model);

    // Else the rounds have tried less than they claim.
    const kinds = ["create users", "create orders", "PATCH users 200", "PATCH orders 200"];
    for (const kind of [...kinds, "DELETE users 200", "unanswered"]) {
      expect(counts[kind] ?? 0, `${kind}: ${JSON.stringify(counts)}`).toBeGreaterThan(ROUNDS);
    }
  },
  60_000,
);
