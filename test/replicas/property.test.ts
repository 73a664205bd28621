// Random concurrent requests to two replicas leave the state, and have the responses, of some sequential order.
import { expect, test } from "bun:test";
import { againstPostgres } from "../http/backend.ts";
import { againstBinary } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { makeRandom } from "../support/random.ts";
import { type Exchange, makeModel, type Request, type Row, rowsOf } from "./model.ts";
import { type Pair, runCommand, startWorld, walk } from "./pair.ts";
import { applyInSomeOrder } from "./sequential-order.ts";

/** TEST_PROPERTY_SECONDS sets it, TEST_PROPERTY_SEED repeats the requests of a run as far as timing allows. */
const DURATION_MS = Number(Bun.env["TEST_PROPERTY_SECONDS"] ?? (isLong ? 4 : 2)) * 1000;
const SEED = Number(Bun.env["TEST_PROPERTY_SEED"] ?? 0) || 1 + Math.floor(Math.random() * 2 ** 31);

/** Clients of a round. Each sends its requests one after the other. */
const CLIENTS = 8;
const REQUESTS = 5;
/** The whole state is compared every so many rounds. */
const ROUNDS_PER_CHECK = 10;
/** Almost always enough for all of `commonOutcomes`. */
const MIN_ROUNDS = 40;
/** Further rounds if one of them is missing. */
const MAX_ROUNDS = 400;
/** Most requests are for the newest records, so that they meet. */
const NEWEST = 5;

type Random = (below: number) => number;

/** Method, collection, status. Without these, the requests would not meet. */
const commonOutcomes = [
  "DELETE users 200",
  "DELETE users 200 replayed",
  "DELETE users 409",
  "PATCH orders 200",
  "PATCH orders 200 replayed",
  "PATCH orders 409",
  "PATCH orders 412",
  "PATCH orders 422",
  "PATCH users 200",
  "PATCH users 409",
  "PATCH users 412",
  "POST orders 201",
  "POST orders 201 replayed",
  "POST orders 409",
  "POST users 201",
  "POST users 201 replayed",
  "POST users 409",
];

const statuses = ["paid", "shipped", "delivered", "canceled"];

/** What the clients know: records as in the last response, and the keys that were used. */
interface Known {
  readonly users: Map<number, Row>;
  readonly orders: Map<number, Row>;
  readonly withKeys: Request[];
}

/** @returns one of the newest, mostly; `undefined` if there is none */
function pick<Item>(random: Random, items: readonly Item[]): Item | undefined {
  const among = random(8) === 0 ? items : items.slice(-NEWEST);
  return among[random(Math.max(1, among.length))];
}

function randomEmail(random: Random, { users }: Known): string {
  const email = `user-${random(NEWEST + users.size)}@example.com`;
  return random(4) === 0 ? email.toUpperCase() : email;
}

/** Sometimes that of another record. */
function randomReference(random: Random, { size }: ReadonlyMap<number, Row>): Row {
  const reference = random(8) === 0 ? null : `R-${random(NEWEST + 2 * size)}`;
  return random(3) === 0 ? { reference } : {};
}

function randomUser(random: Random, known: Known): Row {
  const email = randomEmail(random, known);
  const reference = randomReference(random, known.users);
  return { email, ...reference, ...(random(2) === 0 && { name: `name ${random(100)}` }) };
}

function randomOrder(random: Random, known: Known): Row {
  const items = [{ sku: "A-1", quantity: 1 + random(9), unit_price: random(500) }];
  const userId = pick(random, [...known.users.keys()]) ?? 1;
  const metadata = { note: `${random(100)}` };
  const reference = randomReference(random, known.orders);
  return { user_id: userId, currency: "EUR", ...reference, items, metadata };
}

function randomCreate(random: Random, known: Known): Request {
  const path = random(2) === 0 ? "/users" : "/orders";
  const body = (path === "/users" ? randomUser : randomOrder)(random, known);
  return { method: "POST", path, body };
}

/** Half of the writes have a key; a quarter of the keys was used before, mostly for the same request. */
function withKey(random: Random, known: Known, request: Request): Request {
  if (random(2) === 0) return request;
  const used = random(4) === 0 ? pick(random, known.withKeys) : undefined;
  if (used?.key !== undefined) return random(4) === 0 ? { ...request, key: used.key } : used;
  return { ...request, key: `key-${known.withKeys.length}` };
}

function randomUserChange(random: Random, known: Known): Omit<Request, "path"> {
  switch (random(6)) {
    case 0:
      return { method: "PATCH", body: { email: randomEmail(random, known) } };
    case 1:
      return { method: "PATCH", body: { metadata: { [`key-${random(3)}`]: `${random(100)}` } } };
    case 2:
      return { method: "PATCH", body: { ...randomReference(random, known.users), name: null } };
    case 3:
      return { method: "PUT", body: randomUser(random, known) };
    default:
      return { method: "DELETE" };
  }
}

function randomOrderChange(random: Random, known: Known): Omit<Request, "path"> {
  const status = statuses[random(statuses.length)];
  const bodies = [
    { status },
    { status, refunded: random(200) },
    { refunded: random(2000), metadata: { note: `${random(100)}` } },
    { user_id: pick(random, [...known.users.keys()]) ?? 1 },
    randomReference(random, known.orders),
  ];
  return { method: "PATCH", body: bodies[random(bodies.length)] ?? {} };
}

function randomRead(random: Random, path: string, { users, orders }: Known): Request {
  const userId = pick(random, [...users.keys()]) ?? 1;
  const ids = [1, 2, 3].map(() => pick(random, [...orders.keys()]) ?? 1);
  const paths = [
    path,
    path,
    "/users?limit=1",
    "/orders?limit=1",
    `/orders?user_id=${userId}&limit=1000`,
    `/orders?status=${statuses[random(statuses.length)]}&limit=1`,
    `/orders?id=${[...new Set(ids)]}&limit=100`,
    `/users?reference=R-${random(NEWEST + 2 * users.size)}&limit=1`,
  ];
  return { method: "GET", path: paths[random(paths.length)] ?? path };
}

function randomRequest(random: Random, known: Known): Request {
  if (random(3) === 0) return withKey(random, known, randomCreate(random, known));
  const collection = random(2) === 0 ? "users" : "orders";
  const record = pick(random, [...known[collection].values()]) ?? { id: 1, version: 1 };
  const path = `/${collection}/${record["id"]}`;
  if (random(4) === 0) return randomRead(random, path, known);
  const change =
    collection === "users" ? randomUserChange(random, known) : randomOrderChange(random, known);
  const ifMatch = random(2) === 0 ? {} : { ifMatch: record["version"] };
  return withKey(random, known, { ...change, path, ...ifMatch });
}

/** Later requests are for the record of the response. */
function learn(known: Known, { method, path, response }: Exchange): void {
  const { status, json } = response;
  if (method === "GET" || status > 201) return;
  const records = path.startsWith("/users") ? known.users : known.orders;
  records.set(json.data.id, json.data);
}

async function runRound(pair: Pair, random: Random, known: Known): Promise<Exchange[]> {
  const exchanges: Exchange[] = [];
  let events = 0;

  async function send(request: Request): Promise<void> {
    const { method, path, body, key, ifMatch } = request;
    if (key !== undefined) known.withKeys.push(request);
    const headers = {
      ...(key !== undefined && { "idempotency-key": key }),
      ...(ifMatch !== undefined && { "if-match": `"${ifMatch}"` }),
    };
    events += 1;
    const started = events;
    const replica = pair.both[random(2)] ?? pair.both[0];
    const options = { headers, token: pair.token, ...(body !== undefined && { body }) };
    const response = await replica.call(method, path, options);
    events += 1;
    const exchange = { ...request, response, started, ended: events };
    exchanges.push(exchange);
    learn(known, exchange);
  }

  const clients = Array.from({ length: CLIENTS }, async () => {
    for (let at = 0; at < REQUESTS; at += 1) await send(randomRequest(random, known));
  });
  await Promise.all(clients);
  return exchanges;
}

/** One line, as `PATCH /users/1 {"name":null} ifMatch 1 returns 200 {"data":…}`. */
function describeExchange({ response, body, key, ifMatch, ...exchange }: Exchange): string {
  const { method, path, started, ended } = exchange;
  const words = [`${started}-${ended}`, method, path, JSON.stringify(body)];
  if (key !== undefined) words.push(key);
  if (ifMatch !== undefined) words.push(`ifMatch ${ifMatch}`);
  const replayed = response.headers.has("idempotent-replayed") ? " (replayed)" : "";
  return `${words.join(" ")} returns ${response.status}${replayed} ${response.text}`;
}

function outcomeOf({ method, path, response }: Exchange): string {
  const collection = path.startsWith("/users") ? "users" : "orders";
  const replayed = response.headers.has("idempotent-replayed") ? " replayed" : "";
  return `${method} ${collection} ${response.status}${replayed}`;
}

test.if(againstBinary && againstPostgres)(
  "concurrent requests to two replicas have the outcomes of a sequential order when they are random",
  async () => {
    await using world = await startWorld();
    const { pair, database } = world;
    const outcomes = new Set<string>();
    const random = makeRandom(SEED);
    const known: Known = { users: new Map(), orders: new Map(), withKeys: [] };
    const model = makeModel();
    const deadlineMs = performance.now() + DURATION_MS;
    const isMissing = (outcome: string) => !outcomes.has(outcome);
    const mustContinue = (round: number) =>
      performance.now() < deadlineMs ||
      round <= MIN_ROUNDS ||
      (round <= MAX_ROUNDS && commonOutcomes.some(isMissing));
    for (let round = 1; mustContinue(round); round += 1) {
      const exchanges = await runRound(pair, random, known);
      const unexplained = applyInSomeOrder(model, exchanges);
      const run = `TEST_PROPERTY_SEED=${SEED}, round ${round}`;
      expect(unexplained.map(describeExchange), run).toEqual([]);
      for (const exchange of exchanges) outcomes.add(outcomeOf(exchange));
      if (round % ROUNDS_PER_CHECK !== 0) continue;
      expect(await walk(pair, "/users"), run).toEqual(rowsOf(model.users));
      expect(await walk(pair, "/orders"), run).toEqual(rowsOf(model.orders));
    }
    expect([...outcomes]).toEqual(expect.arrayContaining(commonOutcomes));
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  DURATION_MS + 60_000,
);
