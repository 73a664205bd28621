// What two replicas do to one record, key or token at once, as their clients see it.
import { expect, test } from "bun:test";
import type { Answer } from "../http/server.ts";
import { findCluster } from "../postgres/cluster.ts";
import { type Pair, possible, runCommand, startPair, walk } from "./pair.ts";

const KEYS = 200;
const POSTS = 8;
const ROUNDS = 100;
const EDITS = 4;
/** A revocation holds on every replica after this. */
const REVOKED_MS = 5_000;

async function requireCluster() {
  const cluster = await findCluster();
  if (cluster === null) throw new Error("there is no PostgreSQL");
  return cluster;
}

function times<Result>(count: number, work: (at: number) => Promise<Result>): Promise<Result[]> {
  return Promise.all(Array.from({ length: count }, (_, at) => work(at)));
}

function countOf(statuses: readonly number[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const status of statuses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

async function createUser(pair: Pair, email: string): Promise<Answer["json"]> {
  const { status, json, text } = await pair.call("POST", "/users", { body: { email } });
  expect(status, text).toBe(201);
  return json.data;
}

test.if(possible)(
  "`replicas` agree on keys, edits and totals when clients use both at once",
  async () => {
    const cluster = await requireCluster();
    const database = await cluster.createDatabase();
    {
      await using pair = await startPair(database);
      const schema = "select schema_version, layout from user_api";
      expect(await cluster.run(database, schema)).toEqual([{ schema_version: 1, layout: "plain" }]);
      // It is printed by the one that made it, once.
      const printed = pair.both.flatMap(({ output }) => output.match(/^ {2}uat_\w+$/gm) ?? []);
      expect(printed).toEqual([`  ${pair.token}`]);

      const user = await createUser(pair, "ann@example.com");
      const items = [{ sku: "A-1", quantity: 2, unit_price: 150 }];
      const answers = await times(KEYS * POSTS, (at) => {
        const headers = { "idempotency-key": `key-${Math.floor(at / POSTS)}` };
        const body = { user_id: user.id, currency: "EUR", items };
        return pair.call("POST", "/orders", { body, headers });
      });
      expect(countOf(answers.map(({ status }) => status))).toEqual({ 201: KEYS * POSTS });
      const replayed = answers.filter(({ headers }) => headers.has("idempotent-replayed"));
      expect(replayed.length).toBe(KEYS * (POSTS - 1));
      const made: string[] = [];
      for (let at = 0; at < answers.length; at += POSTS) {
        const texts = new Set(answers.slice(at, at + POSTS).map(({ text }) => text));
        const locations = new Set(
          answers.slice(at, at + POSTS).map(({ headers }) => headers.get("location")),
        );
        expect([at, texts.size, locations.size]).toEqual([at, 1, 1]);
        made.push(...texts);
      }
      const orders = await walk(pair, "/orders");
      const byId = (one: { id: number }, other: { id: number }) => one.id - other.id;
      expect(orders).toEqual(made.map((text) => JSON.parse(text).data).sort(byId));
      expect(await walk(pair, `/orders?user_id=${user.id}&status=pending`)).toEqual(orders);

      const statuses: number[] = [];
      for (let version = 1; version <= ROUNDS; version += 1) {
        const edits = await times(EDITS, (at) =>
          pair.call("PATCH", `/users/${user.id}`, {
            body: { name: `${version}.${at}` },
            headers: { "if-match": `"${version}"` },
          }),
        );
        const done = edits.filter(({ status }) => status === 200);
        expect(done).toHaveLength(1);
        statuses.push(...edits.map(({ status }) => status));
        // Whom the other replica asks, it has what was acknowledged.
        const { json } = await pair.call("GET", `/users/${user.id}`);
        expect(json.data).toEqual(done[0]?.json.data);
      }
      expect(countOf(statuses)).toEqual({ 200: ROUNDS, 412: ROUNDS * (EDITS - 1) });
      expect(await walk(pair, "/users")).toMatchObject([{ id: user.id, version: ROUNDS + 1 }]);
      expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
    }
    await cluster.dropDatabase(database);
  },
  60_000,
);

test.if(possible)(
  "`token revoke` holds on both replicas within 5 s when both know the token",
  async () => {
    const cluster = await requireCluster();
    const database = await cluster.createDatabase();
    {
      await using pair = await startPair(database);
      const created = await runCommand(database, "token", "create", "laptop");
      const token = created.stdout.trim();
      const ask = async () => {
        const answers = await Promise.all(
          pair.both.map((replica) => replica.call("GET", "/users", { token })),
        );
        return answers.map(({ status }) => status);
      };
      expect(await ask()).toEqual([200, 200]);
      // Known for as long as possible.
      await Bun.sleep(50);
      expect((await runCommand(database, "token", "revoke", "laptop")).code).toBe(0);
      const revoked_ms = performance.now();
      const until = [Number.NaN, Number.NaN];
      while (until.some(Number.isNaN)) {
        const statuses = await ask();
        const since_ms = performance.now() - revoked_ms;
        for (const [replica, status] of statuses.entries()) {
          // Once refused it stays refused.
          if (!Number.isNaN(until[replica])) expect([replica, status]).toEqual([replica, 401]);
          else if (status === 401) until[replica] = since_ms;
        }
        expect(since_ms).toBeLessThan(2 * REVOKED_MS);
        await Bun.sleep(20);
      }
      expect(Math.max(...until)).toBeLessThan(REVOKED_MS);
      expect(await ask()).toEqual([401, 401]);
    }
    await cluster.dropDatabase(database);
  },
  30_000,
);
