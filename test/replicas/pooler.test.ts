// The program behind PgBouncer, with the settings of docs/scaling-out.md.
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import {
  againstCitus,
  againstPostgres,
  dropDatabase,
  holdWrites,
  newDatabase,
  runOnServer,
} from "../http/backend.ts";
import { againstBinary, type TestResponse } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { createUser, type Pair, runCommand, startPair } from "./pair.ts";
import { hasPooler, keepsPreparedStatements, startPooler } from "./pooler.ts";

const IMPORTED = 800;
// On Citus, the requests with one key wait for each other's two-phase commits.
const KEYS = againstCitus ? 10 : 40;
const POSTS = 8;
const VERSIONS = 20;
/** Longer than requests with one key wait for each other, and shorter than a statement may take. */
const LOCK_TIMEOUT = againstCitus ? "4s" : "2s";

const countOf = (responses: readonly TestResponse[], expected: number) =>
  responses.filter(({ status }) => status === expected).length;

/** Sends each key in concurrent requests, all keys together. */
async function contendForKeys({ call }: Pair, userId: number): Promise<void> {
  const items = [{ sku: "A-1", quantity: 2, unit_price: 150 }];
  const body = { user_id: userId, currency: "EUR", items };
  const posts = Array.from({ length: KEYS * POSTS }, (_, at) =>
    call("POST", "/orders", { body, headers: { "idempotency-key": `${at % KEYS}` } }),
  );
  const responses = await Promise.all(posts);
  expect(countOf(responses, 201)).toBe(KEYS * POSTS);
  const replayed = responses.filter(({ headers }) => headers.has("idempotent-replayed"));
  expect(replayed).toHaveLength(KEYS * (POSTS - 1));
  for (const [at, { text }] of responses.entries())
    expect(text).toBe(responses[at % KEYS]?.text ?? "");
  const made = responses.slice(0, KEYS).map(({ json }) => json.data);
  const { json } = await call("GET", `/orders?user_id=${userId}&status=pending`);
  expect(json.data).toEqual(made.sort((one, other) => one.id - other.id));
  expect(json.meta.total).toBe(KEYS);
}

/** Sends concurrent edits of each version of a new user with `If-Match`. */
async function contendForVersions({ call }: Pair, id: number): Promise<void> {
  for (let version = 1; version <= VERSIONS; version += 1) {
    const edits = ["a", "b", "c", "d"].map((name) => {
      const headers = { "if-match": `"${version}"` };
      return call("PATCH", `/users/${id}`, { body: { name: name + version }, headers });
    });
    const responses = await Promise.all(edits);
    // Checked in each round: in a sum, a round with two winners would hide one with none.
    expect([countOf(responses, 200), countOf(responses, 412)]).toEqual([1, 3]);
    // Read from the other replica.
    const { json } = await call("GET", `/users/${id}`);
    const winner = responses.find(({ status }) => status === 200);
    expect([json.data, json.data.version]).toEqual([winner?.json.data, version + 1]);
  }
}

async function testGuarantees(preparing?: string): Promise<void> {
  using directory = makeDirectory();
  const direct = await newDatabase(directory);
  const { username, pathname } = new URL(direct);
  const settingsOfRole = `alter role ${username} in database ${pathname.slice(1)}`;
  await runOnServer(direct, `${settingsOfRole} set lock_timeout = '${LOCK_TIMEOUT}'`);
  {
    await using pooler = await startPooler(direct, preparing);
    const database = pooler.through(direct);
    await using pair = await startPair(database);
    const { id } = await createUser(pair, "ann@example.com");
    await contendForKeys(pair, id);
    await contendForVersions(pair, id);

    const lines = Array.from({ length: IMPORTED }, (_, at) => `{"email":"${at}@example.com"}\n`);
    writeFileSync(directory.at("users.ndjson"), lines.join(""));
    const importing = runCommand(database, "import", "users", directory.at("users.ndjson"));
    expect(await importing).toMatchObject({ code: 0 });
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
    const { json } = await pair.call("GET", "/changes?limit=1000");
    const count = IMPORTED + 1 + KEYS + VERSIONS;
    expect(json.data.map((change: { id: number }) => change.id)).toEqual(
      Array.from({ length: count }, (_, at) => at + 1),
    );

    // Settings that PgBouncer does not pass on are those of the role in the database.
    await using _ = await holdWrites(direct);
    const rejected = await pair.call("PATCH", `/users/${id}`, { body: { name: "Ann" } });
    // Without the setting: "the database does not respond".
    expect([rejected.status, rejected.json.error]).toEqual([503, "the database is busy"]);
  }
  await runOnServer(direct, `${settingsOfRole} reset lock_timeout`);
  await dropDatabase(direct);
}

test.if(againstBinary && againstPostgres && hasPooler())(
  "replicas keep their guarantees when they connect through PgBouncer",
  () => testGuarantees(),
  60_000,
);

test.if(againstBinary && againstPostgres && hasPooler() && keepsPreparedStatements())(
  "replicas keep their guarantees when PgBouncer keeps their prepared statements",
  async () => {
    const page = await Bun.file(`${import.meta.dir}/../../docs/scaling-out.md`).text();
    const [ignored] = /^ignore_startup_parameters = .*$/m.exec(page) ?? [];
    await testGuarantees(`max_prepared_statements = 100\n${ignored}`);
  },
  180_000,
);
