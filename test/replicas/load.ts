/**
 * Clients that read from and write to two replicas all the time. They retry a request while it returns 503, so
 * that at the end they know exactly what must be stored.
 */
import { expect } from "bun:test";
import type { TestResponse } from "../http/server.ts";
import { type Pair, walk } from "./pair.ts";

const WRITERS = 12;
const READERS = 4;
/** Pause between two attempts of a request, and between two reads. */
const RETRY_MS = 50;

type Row = Record<string, any>;

export interface Load {
  /** As last acknowledged, by id. */
  readonly users: Map<number, Row>;
  readonly orders: Map<number, Row>;
  /** Responses that no outage excuses, and broken connections. */
  readonly wrong: string[];
  /** Number of responses by status. */
  readonly statuses: Record<number, number>;
  /** Number of writes by replica, by index. */
  readonly written: [number, number];
  /** Replicas, by index, that have sent `Connection: close`: as with a load balancer, they get no more requests. */
  readonly ending: Set<number>;
  /**
   * Replicas, by index, that have received a signal. A client that was not scheduled while the replica drained
   * may find its port or its idle connection closed: it retries with the other one.
   */
  readonly stopping: Set<number>;
  /** Resolves when all requests have a response. */
  stop(): Promise<void>;
}

/** @param token that both accept */
export function startLoad(pair: Pair): Load {
  const users = new Map<number, Row>();
  const orders = new Map<number, Row>();
  const wrong: string[] = [];
  const statuses: Record<number, number> = {};
  const written: [number, number] = [0, 0];
  const ending = new Set<number>();
  const stopping = new Set<number>();
  let going = true;

  /** @returns `null` if the response is a 503, or if there is none */
  async function ask(
    place: 0 | 1,
    ...request: Parameters<Pair["call"]>
  ): Promise<TestResponse | null> {
    const [method, path, options = {}] = request;
    const what = `${method} ${path}`;
    try {
      const response = await pair.both[place].call(method, path, { token: pair.token, ...options });
      statuses[response.status] = (statuses[response.status] ?? 0) + 1;
      if (response.headers.get("connection") === "close") ending.add(place);
      if (response.status !== 503) return response;
      if (response.headers.get("retry-after") !== "1")
        wrong.push(`${what}: 503 without Retry-After`);
    } catch (error) {
      if (stopping.has(place)) ending.add(place);
      else wrong.push(`${what}: ${error}`);
    }
    return null;
  }

  function placeOf(turn: number): 0 | 1 {
    const place = (turn % 2) as 0 | 1;
    return ending.has(place) ? ((1 - place) as 0 | 1) : place;
  }

  /** Sends a request to the replicas in turn, until it has a response other than 503. */
  async function sendWithRetries(...request: Parameters<Pair["call"]>): Promise<TestResponse> {
    for (let tries = Math.floor(Math.random() * 2); ; tries += 1) {
      const place = placeOf(tries);
      const response = await ask(place, ...request);
      if (response !== null) {
        if (response.status < 300) written[place] += 1;
        return response;
      }
      await Bun.sleep(RETRY_MS);
    }
  }

  async function create(kind: "users" | "orders", fields: Row): Promise<Row | null> {
    const headers = { "idempotency-key": crypto.randomUUID() };
    // So that a duplicate can be found.
    const body = { ...fields, metadata: { key: headers["idempotency-key"] } };
    const { status, text, json } = await sendWithRetries("POST", `/${kind}`, { body, headers });
    const known = kind === "users" ? users : orders;
    if (status !== 201 || known.has(json.data.id)) {
      wrong.push(`POST /${kind}: ${status} ${text}`);
      return null;
    }
    known.set(json.data.id, json.data);
    return json.data;
  }

  /** Nobody else edits the user, and an earlier attempt whose response was lost is replayed: it is never a 412. */
  async function rename(user: Row): Promise<void> {
    const path = `/users/${user["id"]}`;
    const name = `name ${Math.random()}`;
    const once = { "if-match": `"${user["version"]}"`, "idempotency-key": crypto.randomUUID() };
    const options = { body: { name }, headers: once };
    const { status, json, text } = await sendWithRetries("PATCH", path, options);
    const wanted = { ...user, name, version: user["version"] + 1 };
    const { updated_at } = json?.data ?? {};
    if (status !== 200 || !Bun.deepEquals(json.data, { ...wanted, updated_at })) {
      wrong.push(`PATCH ${path}: ${status} ${text}`);
    }
    users.set(user["id"], json?.data);
  }

  async function write(writer: number): Promise<void> {
    for (let at = 0; going; at += 1) {
      const email = `${writer}.${at}@example.com`;
      const user = await create("users", { email });
      if (user === null) return;
      const items = [{ sku: "A-1", quantity: 1 + (at % 5), unit_price: 100 }];
      await create("orders", { user_id: user["id"], currency: "EUR", items });
      await rename(user);
    }
  }

  /** A read must return every write that was acknowledged before it was sent. */
  async function read(reader: number): Promise<void> {
    while (going) {
      const place = placeOf(reader);
      const least = orders.size;
      const list = await ask(place, "GET", "/orders?limit=1");
      if (list !== null && (list.status !== 200 || list.json.meta.total < least)) {
        wrong.push(`GET /orders: ${list.status} ${list.text}, not ${least} or more`);
      }
      const [last] = [...orders.values()].slice(-1);
      if (last !== undefined) {
        const one = await ask(place, "GET", `/orders/${last["id"]}`);
        if (one !== null && !(one.status === 200 && Bun.deepEquals(one.json.data, last))) {
          wrong.push(`GET /orders/${last["id"]}: ${one.status} ${one.text}`);
        }
      }
      await Bun.sleep(RETRY_MS);
    }
  }

  const clients = [
    ...Array.from({ length: WRITERS }, (_, writer) => write(writer)),
    ...Array.from({ length: READERS }, (_, reader) => read(reader)),
  ];
  return {
    users,
    orders,
    wrong,
    statuses,
    written,
    ending,
    stopping,
    async stop() {
      going = false;
      await Promise.all(clients);
    },
  };
}

/**
 * Waits until each replica has acknowledged a write.
 * @returns how long it took, in ms
 * @throws {Error} if it takes longer than `timeoutMs`
 */
export async function untilWritten(load: Load, timeoutMs: number): Promise<number> {
  const before = [...load.written];
  const startedMs = performance.now();
  while (load.written.some((count, place) => count === before[place])) {
    if (performance.now() - startedMs > timeoutMs) throw new Error(`no write for ${timeoutMs} ms`);
    await Bun.sleep(1);
  }
  return performance.now() - startedMs;
}

/** Expects every acknowledged record and no other: each write was retried until it had a response. */
export async function requireExact(pair: Pair, load: Load): Promise<void> {
  const byId = ([one]: [number, unknown], [other]: [number, unknown]) => one - other;
  for (const kind of ["users", "orders"] as const) {
    const known = [...load[kind]].sort(byId).map(([, row]) => row);
    expect(known).not.toBeEmpty();
    expect(await walk(pair, `/${kind}`)).toEqual(known);
  }
}
