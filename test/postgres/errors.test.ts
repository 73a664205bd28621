// The errors of the store when the server is slow, unreachable, locked, read-only or untrusted.
import { expect, test as testAlways } from "bun:test";
import type { Session } from "../../src/postgres/server/connection.ts";
import * as errors from "../../src/postgres/server/errors.ts";
import { createSumOrders } from "../../src/postgres/tables/sums.ts";
import { parsed, userFields } from "../contract/open.ts";
import { startSwitch } from "../failover/switch.ts";
import { expectRejection } from "../support/expect-error.ts";
import { patient, test } from "./postgres-harness.ts";
import { serverError } from "./server-error.ts";

const page = { limit: 10, offset: 0 };

const LOST = "08006";

testAlways.each([
  ["failure on connection marked as essential: 127.0.0.1:5461", LOST],
  ["could not commit transaction for shard 102008 on at least one node", LOST],
  ["SSL SYSCALL error: EOF detected\ninvalid socket", LOST],
  ["server closed the connection unexpectedly", LOST],
  ["postmaster was shut down, exiting", LOST],
  ["terminating connection due to unexpected postmaster exit", LOST],
  ["cannot abort transaction 1154, it was already committed", LOST],
  ["canceling statement due to lock timeout", "55P03"],
  [
    'insert on "orders_102009" violates foreign key constraint "orders_user_id_fkey_102009"',
    "23503",
  ],
  ['duplicate key value violates unique constraint "users_email_key_key_102008"', "23505"],
  ["deadlock detected", "40P01"],
  ["cache lookup failed for relation 16384", "XX000"],
])("the internal error %j of a coordinator of Citus has the SQLSTATE %s", (message, state) => {
  const error = serverError("XX000", { message });
  expect(errors.sqlState(error)).toBe(state);
  // If the worker is lost, the batch may be committed, so its writes must not run again.
  expect(errors.isStatementError(errors.toUnavailable(error))).toBe(state !== LOST);
});

testAlways.each([
  ["28P01", "password authentication failed for user", "the user name or the password is wrong"],
  ["28000", 'no pg_hba.conf entry for host "::1", no encryption', "add sslmode=require to the URL"],
  ["42501", "query would be affected by row-level security policy", "row-level security hides"],
  ["08P01", "unsupported startup parameter: statement_timeout", "add prepare=false to the URL"],
] as const)("a refusal (%s %s) names its reason at startup", (state, reported, part) => {
  const error = serverError(state, { message: reported });
  const message = expect.stringMatching(new RegExp(`^Cannot open a: .*${part}`));
  expect(errors.describePostgresError("Cannot open a", error)).toMatchObject({
    code: "operator",
    message,
  });
});

testAlways.each(["CRL_HAS_EXPIRED", "ERR_TLS_CERT_ALTNAME_INVALID", "INVALID_CA"])(
  "a certificate that cannot be verified (%s) becomes unavailable, and a one-line message at startup",
  (code) => {
    const error = Object.assign(new Error("rejected"), { code });
    const unavailable = errors.toUnavailable(error);
    expect(unavailable).toMatchObject({
      code: "unavailable",
      message: "the database is currently unreachable",
    });
    for (const thrown of [error, unavailable]) {
      expect(errors.describePostgresError("Cannot open postgres://a/b", thrown)).toMatchObject({
        code: "operator",
        message: `Cannot open postgres://a/b: the certificate of the server cannot be verified: rejected (${code})`,
      });
    }
  },
);

testAlways("a bug is not taken for a problem of the certificate", () => {
  const error = Object.assign(new Error("a bug"), { code: "ERR_INVALID_ARG_TYPE" });
  expect(errors.toUnavailable(error)).toBe(error);
  expect(errors.describePostgresError("Cannot open postgres://a/b", error)).toBe(error);
});

test("sums are unavailable when their statement times out", async (world) => {
  const db = world.connect(world.urlWith(patient));
  const scripts: string[] = [];
  /** Its statements time out at once. */
  const impatient = (session: Session): Session => ({
    ...session,
    script(statements) {
      scripts.push(statements);
      return session.script(statements.replace(/(?<=statement_timeout = )\d+/, "1"));
    },
  });
  const run: typeof db.run = (kind, work, options) =>
    db.run(kind, (session) => work(impatient(session)), options);
  await using _held = await world.hold("lock table orders in access exclusive mode");
  const sums = createSumOrders({ ...db, run })(["2026-01-01", "2026-02-01"], "a");
  const error = await expectRejection(sums, "unavailable", "the database is busy");
  expect(errors.sqlState(error)).toBe("57014");
  expect(scripts).toContain("set local statement_timeout = 30000");
});

test("the store rejects with unavailable when the response to a commit is lost, and a retry with the key is safe", async (world) => {
  await using network = await startSwitch(world.url);
  const store = await world.open({ databaseUrl: network.through(world.url) });
  const key = { owner: "a", key: "b", fingerprint: "c" };
  const fields = userFields();
  network.loseResponseTo(fields.email);
  await expectRejection(store.users.create(fields, key), "unavailable");
  const { replayed, ...record } = await store.users.create(fields, key);
  expect([parsed(record).email, replayed]).toEqual([fields.email, true]);
  expect((await store.users.list(page)).total).toBe(1);
});

test("the store recovers, and closes, when its connections stop responding", async (world) => {
  const db = world.connect(world.urlWith("max=2&statement_timeout=0"));
  const sleep = (session: Session) => session.all("select pg_sleep(60)");
  // The second one begins on a new connection.
  const silent = [1, 2].map(() => db.run("write", sleep, { transaction: true, timeoutMs: 100 }));
  for (const work of silent)
    await expectRejection(work, "unavailable", "the database does not respond");
  const read = db.run("read", (session) => session.first("select 1 as one"));
  expect(await read).toEqual({ one: 1 });
  const last = db.run("write", sleep, { transaction: true, timeoutMs: 100 });
  await Promise.all([expectRejection(last, "unavailable"), db.close()]);
  // The engine of a container kills a server soon after SHUTDOWN_SECONDS.
  const sleeping = "select from pg_stat_activity where wait_event = 'PgSleep'";
  expect(await world.run(sleeping)).not.toEqual([]);
});

test("the store rejects checkUsable when a session cannot load PL/pgSQL, which creates need", async (world) => {
  const store = await world.open();
  // What PostgreSQL reports if the file of the language is missing.
  await world.run(`
    create or replace function feed_origin() returns bigint[] language plpgsql as $$
    begin
      raise exception 'could not access file "$libdir/plpgsql"' using errcode = '58P01';
    end
    $$
  `);
  await expectRejection(store.checkUsable(), "unavailable");
});

test("the store returns its statistics without delay, and counts no last use of a token, when every connection is in use or closed", async (world) => {
  const store = await world.open({ databaseUrl: world.urlWith(`max=1${patient}`) });
  const { databaseBytes, ...rest } = await store.statistics();
  expect(databaseBytes).toBeGreaterThan(1_000_000);
  expect(rest).toEqual({ pendingWrites: 0, walBytes: 0, freeBytes: null, lastBackupS: null });
  const held = await world.hold("lock table tokens in exclusive mode");
  const touched = store.tokens.touch("hash", "2026-11-20T18:57:00.000Z");
  await world.untilWaiting();
  expect(await store.statistics()).toMatchObject({ pendingWrites: 0, databaseBytes });
  const created = store.users.create(userFields(), null);
  expect(await store.statistics()).toMatchObject({ pendingWrites: 1, databaseBytes });
  await held.commit();
  await Promise.all([touched, created]);
  await store.checkUsable();
  expect(world.commits).toEqual([1, 1]);
  await store.close();
  expect((await store.statistics()).databaseBytes).toBeGreaterThanOrEqual(databaseBytes);
});
