// Starts a server on a database, one page of which is overwritten with zeros. Only requests that need this page may
// fail, with an error that is not to be retried, and the log must name the table.
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, readFileSync } from "node:fs";
import { newUser } from "../http/make.ts";
import {
  againstBinary,
  logs,
  startReplica,
  startServer,
  type TestResponse,
  type TestServer,
} from "../http/server.ts";
import { damagePage, PAGE_BYTES } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";

const USERS = 2_000;
/** The user whose page is damaged: in the middle, where no new user is written. */
const DAMAGED_ID = 1_000;
/** A user on another page. */
const OTHER_ID = 200;

function emailOf(id: number): string {
  return `user-${id}-${"x".repeat(40)}@example.com`;
}

async function createUsers({ database }: TestServer): Promise<void> {
  const note = "n".repeat(300);
  const users = Array.from({ length: USERS }, (_, at) => ({
    email: emailOf(at + 1),
    name: null,
    metadata: { id: `${at + 1}`, note },
  }));
  await withStore(database, ({ bulk }) => bulk.users.import(users));
}

/** The database that each test starts with; its file is copied. */
let base: TestServer;
if (againstBinary) {
  beforeAll(async () => {
    base = await startServer();
    await createUsers(base);
    await base.stop();
  }, 60_000);
  afterAll(() => base[Symbol.asyncDispose]());
}

/** @returns the number of the leaf page of this b-tree that contains the text. The server must not run. */
function findPage(database: string, btree: string, text: string): number {
  using db = new Database(database, { readonly: true });
  const pages = db
    .query<{ pageno: number }, [string]>(
      "select pageno from dbstat where name = ? and pagetype = 'leaf'",
    )
    .all(btree);
  const bytes = readFileSync(database);
  const found = pages.find(({ pageno }) =>
    bytes.subarray((pageno - 1) * PAGE_BYTES, pageno * PAGE_BYTES).includes(text),
  );
  if (found === undefined) throw new Error(`no page of ${btree} contains ${text}`);
  return found.pageno;
}

/** Starts a server on a database with one damaged page. */
async function startDamaged(btree: string, text: string): Promise<TestServer> {
  const directory = makeDirectory();
  const database = directory.at("test.db");
  copyFileSync(base.database, database);
  damagePage(database, findPage(database, btree, text), 0);
  const server = await startReplica(database, {}, base);
  return Object.assign(server, {
    async [Symbol.asyncDispose]() {
      await server.stop("SIGKILL");
      directory[Symbol.dispose]();
    },
  });
}

function expectInternalError(response: TestResponse): void {
  expect([response.status, response.text]).toEqual([500, "internal error"]);
  expect(response.headers.has("retry-after")).toBe(false);
}

/** Expects that the log names the table and says that it is damaged. */
async function expectDamageLogged(server: TestServer, table: string): Promise<void> {
  const errors = (await logs(server)).filter(({ level }) => level === "error");
  const reported = errors.filter((line) => {
    const text = JSON.stringify(line);
    return text.includes("damaged") && new RegExp(`\\b${table}\\b`).test(text);
  });
  expect(reported, JSON.stringify(errors.slice(0, 3))).not.toBeEmpty();
}

async function expectServing(server: TestServer): Promise<void> {
  const health = await server.call("GET", "/health", { token: null });
  expect(health.status).toBe(200);
  expect((await server.call("GET", `/users/${OTHER_ID}`)).status).toBe(200);
  expect((await server.call("GET", "/users?limit=10")).status).toBe(200);
  await newUser(server);
  expect(server.output).not.toContain('"event":"stopping"');
}

const emailQuery = `/users?email=${emailOf(DAMAGED_ID)}`;
const listQuery = `/users?limit=20&offset=${DAMAGED_ID - 10}`;

test.skipIf(!againstBinary)(
  "requests that need a damaged page return 500, and others succeed",
  async () => {
    await using server = await startDamaged("users", emailOf(DAMAGED_ID));
    for (const [method, path] of [
      ["GET", `/users/${DAMAGED_ID}`],
      ["GET", listQuery],
      ["GET", emailQuery],
      ["DELETE", `/users/${DAMAGED_ID}`],
    ] as const) {
      for (let time = 0; time < 3; time += 1) {
        expectInternalError(await server.call(method, path));
        await expectServing(server);
      }
    }
    await expectDamageLogged(server, "users");
  },
  60_000,
);

test.skipIf(!againstBinary)(
  "GET /users?email= returns 500, and GET /users/:id 200, when a page of the index is damaged",
  async () => {
    const key = emailOf(DAMAGED_ID);
    await using server = await startDamaged("sqlite_autoindex_users_1", key);
    for (let time = 0; time < 3; time += 1) {
      expectInternalError(await server.call("GET", emailQuery));
      expect((await server.call("GET", `/users/${DAMAGED_ID}`)).status).toBe(200);
      expect((await server.call("GET", listQuery)).status).toBe(200);
    }
    await expectDamageLogged(server, "users");
    expect((await server.call("GET", "/health", { token: null })).status).toBe(200);
  },
  60_000,
);
