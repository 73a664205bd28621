// Fills the disk while the server runs, and makes room again. io-errors-of-requests.test.ts has other errors. Meanwhile no write may be acknowledged, no acknowledged
// write may be lost, and the server must recover without a restart.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readdirSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { CHECKPOINT_PAGES } from "../../src/sqlite/file/connection.ts";
import { newEmail } from "../http/make.ts";
import { againstBinary, startServer, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { runBinary } from "../support/program.ts";
import { fillDisk, largeMetadata, mountDisk } from "./disk.ts";
import { untilHealth } from "./health.ts";

interface Outcome {
  readonly emails: Set<string>;
  readonly statuses: Set<number>;
}

/**
 * Creates users until this many have been rejected in a row. A nearly full disk has room for a few more when the
 * write-ahead log restarts.
 */
async function createUntilRejected(server: TestServer, maxRejected: number): Promise<Outcome> {
  const outcome: Outcome = { emails: new Set(), statuses: new Set() };
  for (let rejected = 0; rejected < maxRejected; ) {
    // Few large users fill the disk. The first is small, for `untilNoPageFits`, and so are the last ones.
    const isSmall = outcome.emails.size === 0 || outcome.statuses.has(503);
    const metadata = isSmall ? { note: "n".repeat(500) } : largeMetadata;
    const body = { email: newEmail(), metadata };
    const { status, headers, text } = await server.call("POST", "/users", { body });
    outcome.statuses.add(status);
    if (status === 201) {
      outcome.emails.add(body.email);
      rejected = 0;
      continue;
    }
    rejected += 1;
    expect(headers.get("retry-after")).toBe("2");
    expect(text).toBe(
      '{"data":null,"error":"the database cannot be written at the moment","meta":{"code":"unavailable"}}',
    );
  }
  return outcome;
}

async function expectStored(server: TestServer, emails: ReadonlySet<string>): Promise<void> {
  const { json } = await server.call("GET", "/users?limit=1");
  expect(json.meta.total).toBe(emails.size);
  using db = new Database(server.database, { readonly: true });
  const stored = new Set(db.query("select email from users").values().flat());
  expect([...emails].filter((email) => !stored.has(email))).toEqual([]);
}

/** A failed write leaves pages that the next one can use. An edit needs one page. */
async function untilNoPageFits(server: TestServer): Promise<void> {
  const edit = () => server.call("PATCH", "/users/1", { body: { name: crypto.randomUUID() } });
  while ((await edit()).status === 200);
}

// A checkpoint is due when the log has this many pages. It fills the disk, since it copies them to the database.
const logBytes = CHECKPOINT_PAGES * 4096;
const small = againstBinary ? mountDisk(1.5 * logBytes) : null;
if (againstBinary && small === null) {
  console.warn("A full disk is not tested: cannot mount a file system here");
}

test.if(small !== null)(
  "commands print one line, and create nothing, when the disk is full",
  async () => {
    using disk = mountDisk(400_000) ?? makeDirectory();
    const path = disk.at("a.db");
    await fillDatabase(path, 3, 2);
    fillDisk(disk.at("filler"));
    for (const [file, ...args] of [
      ["a.db", "token", "create", "a"],
      ["a.db", "check"],
      ["a.db", "serve"],
      ["new.db", "serve"],
    ]) {
      const env = { DATABASE_URL: disk.at(`${file}`), PORT: "0" };
      const { code, stderr } = await runBinary(args, env);
      const line = `Cannot open ${disk.at(`${file}`)}: the disk is full\n`;
      expect([args, code, stderr]).toEqual([args, 1, line]);
    }
    expect(readdirSync(disk.path)).not.toContain("new.db");
  },
);

test.if(small !== null)(
  "writes return 503 while the disk is full, and succeed afterwards",
  async () => {
    const directory = small ?? makeDirectory();
    const fillers = [directory.at("filler-1"), directory.at("filler-2")] as const;
    writeFileSync(fillers[0], "x".repeat(400_000));
    await using server = await startServer({}, directory);
    const { emails, statuses } = await createUntilRejected(server, 20);
    expect(statuses).toEqual(new Set([201, 503]));
    expect(statSync(server.database).size).toBeGreaterThan(logBytes / 4);
    // Smaller writes fail as well.
    fillDisk(fillers[1]);
    await untilNoPageFits(server);
    await untilHealth(server, 503);
    // Reads still succeed.
    expect((await server.call("GET", "/users?limit=1")).status).toBe(200);
    for (const path of fillers) rmSync(path);
    await untilHealth(server, 200);
    for (let count = 0; count < 5; count += 1) {
      const email = newEmail();
      const { status } = await server.call("POST", "/users", { body: { email } });
      expect(status).toBe(201);
      emails.add(email);
    }
    await expectStored(server, emails);
    await server.stop("SIGKILL");
    await server.restart();
    await expectStored(server, emails);
  },
  180_000,
);

const tiny = small === null ? null : mountDisk(4 * 2 ** 20);

test.if(tiny !== null)(
  "health returns 503 when the disk has room for a page, but not for a request",
  async () => {
    const directory = tiny ?? makeDirectory();
    const filler = directory.at("filler");
    await using server = await startServer({}, directory);
    const create = async () => {
      const body = { email: newEmail() };
      return (await server.call("POST", "/users", { body })).status;
    };
    expect(await create()).toBe(201);
    fillDisk(filler);
    truncateSync(filler, statSync(filler).size - 2 * 4096);
    expect(await create()).toBe(503);
    // The first check: no earlier result is reused.
    expect((await server.call("GET", "/health", { token: null })).status).toBe(503);
    rmSync(filler);
    await untilHealth(server, 200);
    expect(await create()).toBe(201);
  },
  180_000,
);
