// Starts a server on a database, one page of which is overwritten with zeros. Only requests that need this page may
// fail, with an error that is not to be retried, and the log must name the table.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { newUser } from "../http/make.ts";
import { againstBinary, logs, startServer, type TestServer } from "../http/server.ts";
import { damagePage, PAGE_BYTES } from "../support/damage.ts";
import { withStore } from "../support/open-store.ts";

const USERS = 2_000;
/** The user whose page is damaged: in the middle, where no new user is written. */
const DAMAGED_ID = 1_000;
/** A user on another page. */
const OTHER_ID = 200;

function emailOf(id: number): string {
  return `user-${id}-${"x".repeat(40)}@example.com`;
}

/** @returns the number of the leaf page of the table that contains the text. The server must not run. */
function findPage(database: string, text: string): number {
  using db = new Database(database, { readonly: true });
  const leaves = db
    .query("select pageno from dbstat where name = 'users' and pagetype = 'leaf'")
    .values()
    .map(([page]) => Number(page));
  const bytes = readFileSync(database);
  const found = leaves.find((page) =>
    bytes.subarray((page - 1) * PAGE_BYTES, page * PAGE_BYTES).includes(text),
  );
  if (found === undefined) throw new Error(`no page contains ${text}`);
  return found;
}

/** Starts a server on a database with many users, the page of one of whom is damaged. */
async function startDamaged(): Promise<TestServer> {
  const server = await startServer();
  const note = "n".repeat(300);
  const users = Array.from({ length: USERS }, (_, at) => ({
    email: emailOf(at + 1),
    name: null,
    metadata: { id: `${at + 1}`, note },
  }));
  await withStore(server.database, ({ bulk }) => bulk.users.import(users));
  await server.stop();
  damagePage(server.database, findPage(server.database, emailOf(DAMAGED_ID)), 0);
  await server.restart();
  return server;
}

async function expectServing(server: TestServer): Promise<void> {
  const health = await server.call("GET", "/health", { token: null });
  expect(health.status).toBe(200);
  expect((await server.call("GET", `/users/${OTHER_ID}`)).status).toBe(200);
  expect((await server.call("GET", "/users?limit=10")).status).toBe(200);
  await newUser(server);
  expect(server.output).not.toContain('"event":"stopping"');
}

test.skipIf(!againstBinary)(
  "requests that need a damaged page return 500, and others succeed",
  async () => {
    await using server = await startDamaged();
    for (const [method, path] of [
      ["GET", `/users/${DAMAGED_ID}`],
      ["GET", `/users?limit=20&offset=${DAMAGED_ID - 10}`],
      ["GET", `/users?email=${emailOf(DAMAGED_ID)}`],
      ["DELETE", `/users/${DAMAGED_ID}`],
    ] as const) {
      for (let time = 0; time < 3; time += 1) {
        const { status, text, headers } = await server.call(method, path);
        expect([status, text, headers.has("retry-after")]).toEqual([500, "internal error", false]);
        await expectServing(server);
      }
    }
    const errors = (await logs(server)).filter(({ level }) => level === "error");
    expect(errors.map((line) => JSON.stringify(line))).toContainEqual(
      expect.stringMatching(/damaged.*\busers\b/),
    );
  },
  180_000,
);
