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
import { againstBinary } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { contendForKeys, contendForVersions, createUser } from "./contend.ts";
import { runCommand, startPair, walk } from "./pair.ts";
import { hasPooler, keepsPreparedStatements, startPooler } from "./pooler.ts";

const IMPORTED = 2_000;
// On Citus, the requests with one key wait for each other's two-phase commits.
const KEYS = againstCitus ? 10 : 40;
/** Longer than requests with one key wait for each other, and shorter than a statement may take. */
const LOCK_TIMEOUT = againstCitus ? "4s" : "2s";

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
    const user = await createUser(pair, "ann@example.com");
    await contendForKeys(pair, user["id"], KEYS, 8);
    await contendForVersions(pair, user, 20, 4);

    // COPY in a transaction with a lock, at the same time.
    const lines = Array.from({ length: IMPORTED }, (_, at) => `{"email":"${at}@example.com"}\n`);
    writeFileSync(directory.at("users.ndjson"), lines.join(""));
    const importing = runCommand(database, "import", "users", directory.at("users.ndjson"));
    expect(await importing).toMatchObject({ code: 0 });
    const { json } = await pair.call("GET", "/users?limit=1");
    expect(json.meta.total).toBe(IMPORTED + 1);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });

    const changes = await walk(pair, "/changes");
    expect(changes.map(({ id }) => id)).toEqual(changes.map((_, at) => at + 1));
    expect(changes).toHaveLength(IMPORTED + 1 + KEYS + 20);

    // Settings that PgBouncer does not pass on are those of the role in the database.
    await using _ = await holdWrites(direct);
    const rejected = await pair.call("PATCH", `/users/${user["id"]}`, { body: { name: "Ann" } });
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
