/**
 * A sequential model of the API, and a search for an order in which it allows the responses to concurrent requests
 * (linearizability).
 * @see https://cs.brown.edu/~mph/HerlihyW90/p463-herlihy.pdf
 */
import type { TestResponse } from "../http/server.ts";

export type Row = Record<string, any>;

export interface Request {
  readonly method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  /** `/users`, `/orders`, or one record of them; a list may have one filter. */
  readonly path: string;
  readonly body?: Row;
  readonly key?: string;
  /** A version. */
  readonly ifMatch?: number;
}

export interface Exchange extends Request {
  readonly response: TestResponse;
  /** When the request was sent and its response received, as numbers of a common sequence of events. */
  readonly started: number;
  readonly ended: number;
}

export interface Model {
  readonly users: Map<number, Row>;
  readonly orders: Map<number, Row>;
  readonly deletedUsers: Set<number>;
  /** The first exchange with each key. */
  readonly keys: Map<string, Exchange>;
}

type Undo = () => void;

/** The undo of an exchange that changes nothing. */
const nothing: Undo = () => {};

const transitions: Record<string, readonly string[]> = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "canceled"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
};

export function makeModel(): Model {
  return { users: new Map(), orders: new Map(), deletedUsers: new Set(), keys: new Map() };
}

/** @returns the records by ascending id */
export function rowsOf(records: ReadonlyMap<number, Row>): Row[] {
  return [...records.values()].sort((left, right) => left["id"] - right["id"]);
}

function nothingIf(allowed: boolean): Undo | null {
  return allowed ? nothing : null;
}

function isTaken(model: Model, email: string, but?: number): boolean {
  const key = email.toLowerCase();
  return model.users
    .values()
    .some((user) => user["email"].toLowerCase() === key && user["id"] !== but);
}

/** Stores the record of the response if it has the wanted members. */
function store(
  records: Map<number, Row>,
  wanted: Row,
  { status, json }: TestResponse,
): Undo | null {
  const record: Row = json?.data ?? {};
  const { id, created_at, updated_at } = record;
  const before = records.get(id);
  const times = before === undefined ? { created_at: updated_at } : {};
  const isWanted =
    status === (before === undefined ? 201 : 200) &&
    updated_at >= (before?.["updated_at"] ?? created_at) &&
    Bun.deepEquals(record, { ...wanted, id, created_at, updated_at, ...times });
  if (!isWanted) return null;
  records.set(id, record);
  return () => {
    if (before === undefined) records.delete(id);
    else records.set(id, before);
  };
}

function createUser(model: Model, body: Row, response: TestResponse): Undo | null {
  if (isTaken(model, body["email"])) return nothingIf(response.status === 409);
  const id = response.json?.data?.id;
  if (model.users.has(id) || model.deletedUsers.has(id)) return null;
  return store(model.users, { name: null, metadata: {}, ...body, version: 1 }, response);
}

function createOrder(model: Model, body: Row, response: TestResponse): Undo | null {
  if (!model.users.has(body["user_id"])) return nothingIf(response.status === 400);
  if (model.orders.has(response.json?.data?.id)) return null;
  const items: { quantity: number; unit_price: number }[] = body["items"];
  const total = items.reduce((sum, { quantity, unit_price }) => sum + quantity * unit_price, 0);
  const wanted = { metadata: {}, ...body, total, status: "pending", version: 1 };
  return store(model.orders, wanted, response);
}

/** Compares what a key identifies. */
function isSameRequest(one: Request, other: Request): boolean {
  return one.path === other.path && Bun.deepEquals(one.body, other.body);
}

function create(model: Model, exchange: Exchange): Undo | null {
  const { path, body = {}, key, response } = exchange;
  const replayed = response.headers.has("idempotent-replayed");
  const first = key === undefined ? undefined : model.keys.get(key);
  if (first !== undefined) {
    if (!isSameRequest(first, exchange)) return nothingIf(response.status === 422);
    return nothingIf(
      replayed &&
        response.status === 201 &&
        response.text === first.response.text &&
        response.headers.get("location") === first.response.headers.get("location"),
    );
  }
  if (replayed) return null;
  const undo = (path === "/users" ? createUser : createOrder)(model, body, response);
  if (key === undefined || response.status !== 201 || undo === null) return undo;
  model.keys.set(key, exchange);
  return () => {
    model.keys.delete(key);
    undo();
  };
}

/** A JSON Merge Patch whose metadata has no `null`. */
function patched(current: Row, patch: Row): Row {
  return { ...current, ...patch, metadata: { ...current["metadata"], ...patch["metadata"] } };
}

function change(
  records: Map<number, Row>,
  current: Row,
  wanted: Row,
  response: TestResponse,
): Undo | null {
  const data = response.json?.data;
  if (Bun.deepEquals(wanted, current)) {
    return nothingIf(response.status === 200 && Bun.deepEquals(data, current));
  }
  if (data?.id !== current["id"]) return null;
  return store(records, { ...wanted, version: current["version"] + 1 }, response);
}

function changeUser(model: Model, current: Row, exchange: Exchange): Undo | null {
  const { method, body = {}, response } = exchange;
  const wanted: Row =
    method === "PUT" ? { ...current, name: null, metadata: {}, ...body } : patched(current, body);
  if (isTaken(model, wanted["email"], current["id"])) return nothingIf(response.status === 409);
  return change(model.users, current, wanted, response);
}

function deleteUser(model: Model, current: Row, { response }: Exchange): Undo | null {
  const { id } = current as { id: number };
  const hasOrders = model.orders.values().some(({ user_id }) => user_id === id);
  if (hasOrders) return nothingIf(response.status === 409);
  if (response.status !== 200 || !Bun.deepEquals(response.json.data, current)) return null;
  model.users.delete(id);
  model.deletedUsers.add(id);
  return () => {
    model.users.set(id, current);
    model.deletedUsers.delete(id);
  };
}

function changeOrder(model: Model, current: Row, { body = {}, response }: Exchange): Undo | null {
  const { status = current["status"] } = body;
  if (status !== current["status"] && !transitions[current["status"]]?.includes(status)) {
    return nothingIf(response.status === 409);
  }
  return change(model.orders, current, patched(current, body), response);
}

/** A whole list, or its first record. */
function list(records: ReadonlyMap<number, Row>, { path, response }: Exchange): Undo | null {
  const { searchParams } = new URL(path, "http://localhost");
  const limit = Number(searchParams.get("limit"));
  const [[filter, value] = []] = [...searchParams].filter(([name]) => name !== "limit");
  const rows = rowsOf(records).filter((row) => filter === undefined || `${row[filter]}` === value);
  return nothingIf(
    response.status === 200 &&
      response.json.meta.total === rows.length &&
      Bun.deepEquals(response.json.data, rows.slice(0, limit)),
  );
}

/** @returns how to undo it; `null` if the model does not allow this response in its current state */
function step(model: Model, exchange: Exchange): Undo | null {
  const { method, path, ifMatch, response } = exchange;
  const [, collection = "", id] = path.split("?")[0]?.split("/") ?? [];
  const records = collection === "users" ? model.users : model.orders;
  if (method === "POST") return create(model, exchange);
  if (id === undefined) return list(records, exchange);
  const current = records.get(Number(id));
  if (current === undefined) return nothingIf(response.status === 404);
  if (method === "GET") {
    return nothingIf(response.status === 200 && Bun.deepEquals(response.json.data, current));
  }
  if (ifMatch !== undefined && ifMatch !== current["version"]) {
    return nothingIf(response.status === 412);
  }
  if (collection === "orders") return changeOrder(model, current, exchange);
  return method === "DELETE"
    ? deleteUser(model, current, exchange)
    : changeUser(model, current, exchange);
}

/**
 * Applies the exchanges to the model in an order that it allows. An exchange that ended before another started comes
 * before it.
 * @returns none if there is such an order; otherwise those that remain after the longest order found
 */
export function applyInSomeOrder(
  model: Model,
  exchanges: readonly Exchange[],
): readonly Exchange[] {
  let fewest = exchanges;
  const failed = new Set<string>();

  function search(remaining: readonly Exchange[]): boolean {
    if (remaining.length === 0) return true;
    // What remains determines the state, because the responses have the versions.
    const signature = remaining.map(({ started }) => started).join();
    if (failed.has(signature)) return false;
    if (remaining.length < fewest.length) fewest = remaining;
    const without = (one: Exchange) => remaining.filter((other) => other !== one);
    const firstEnd = Math.min(...remaining.map(({ ended }) => ended));
    const changes: Exchange[] = [];
    for (const exchange of remaining) {
      if (exchange.started > firstEnd) continue;
      const undo = step(model, exchange);
      // It can come first in every order, because it changes nothing.
      if (undo === nothing) return search(without(exchange));
      if (undo === null) continue;
      undo();
      changes.push(exchange);
    }
    for (const exchange of changes) {
      const undo = step(model, exchange);
      if (search(without(exchange))) return true;
      undo?.();
    }
    failed.add(signature);
    return false;
  }

  return search(exchanges) ? [] : fewest;
}
