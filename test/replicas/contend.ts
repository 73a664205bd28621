/** Concurrent clients of two replicas that compete for the same keys or versions, and the required responses. */
import { expect } from "bun:test";
import type { TestResponse } from "../http/server.ts";
import { type Pair, walk } from "./pair.ts";

type Row = Record<string, any>;

function countOf(responses: readonly TestResponse[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of responses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

function times<Result>(count: number, work: (at: number) => Promise<Result>): Promise<Result[]> {
  return Promise.all(Array.from({ length: count }, (_, at) => work(at)));
}

export async function createUser(pair: Pair, email: string): Promise<Row> {
  const { status, json, text } = await pair.call("POST", "/users", { body: { email } });
  expect(status, text).toBe(201);
  return json.data;
}

/** Sends each key in `posts` concurrent requests, all keys together. The database must have no orders. */
export async function contendForKeys(pair: Pair, userId: number, keys: number, posts: number) {
  const items = [{ sku: "A-1", quantity: 2, unit_price: 150 }];
  const body = { user_id: userId, currency: "EUR", items };
  const responses = await times(keys * posts, (at) => {
    const headers = { "idempotency-key": `key-${Math.floor(at / posts)}` };
    return pair.call("POST", "/orders", { body, headers });
  });
  expect(countOf(responses)).toEqual({ 201: keys * posts });
  const replayed = responses.filter(({ headers }) => headers.has("idempotent-replayed"));
  expect(replayed).toHaveLength(keys * (posts - 1));
  const made: Row[] = [];
  for (let at = 0; at < responses.length; at += posts) {
    const ofKey = responses.slice(at, at + posts);
    const told = ofKey.map(({ text, headers }) => `${headers.get("location")} ${text}`);
    expect([at, new Set(told).size]).toEqual([at, 1]);
    made.push(ofKey[0]?.json.data);
  }
  const orders = await walk(pair, "/orders");
  expect(orders).toHaveLength(keys);
  expect(orders).toEqual(made.sort((one, other) => one["id"] - other["id"]));
  expect(await walk(pair, `/orders?user_id=${userId}&status=pending`)).toEqual(orders);
}

/** Sends, for each version of a new user, `edits` concurrent edits with `If-Match`. */
export async function contendForVersions(pair: Pair, { id }: Row, rounds: number, edits: number) {
  for (let version = 1; version <= rounds; version += 1) {
    const responses = await times(edits, (at) =>
      pair.call("PATCH", `/users/${id}`, {
        body: { name: `${version}.${at}` },
        headers: { "if-match": `"${version}"` },
      }),
    );
    // Checked in each round: in a sum, a round with two winners would hide one with none.
    expect(countOf(responses)).toEqual({ 200: 1, 412: edits - 1 });
    const winner = responses.find(({ status }) => status === 200);
    // Read from the other replica.
    const { json } = await pair.call("GET", `/users/${id}`);
    expect(json.data).toEqual(winner?.json.data);
    expect(json.data.version).toBe(version + 1);
  }
}
