// Replaces the database file while the server uses it; file-watch.test.ts has all of the ways. A process can still write to a
// file without a name, but such writes are lost after a restart, so they must not be acknowledged.
import { expect, test } from "bun:test";
import { copyFileSync, linkSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { basename } from "node:path";
import { newEmail, newUser } from "../http/make.ts";
import { againstBinary, logs, startServer, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { runBinary } from "../support/program.ts";
import { untilHealth } from "./health.ts";

const CLIENTS = 50;

/** Clients that create users at the same time. */
function makeClients({ call }: TestServer) {
  const acknowledged: string[] = [];
  async function create(): Promise<number> {
    const email = newEmail();
    const { status } = await call("POST", "/users", { body: { email } });
    if (status === 201) acknowledged.push(email);
    return status;
  }
  return {
    /** Their emails. */
    acknowledged,
    /** @returns the statuses */
    create: async () => new Set(await Promise.all(Array.from({ length: CLIENTS }, create))),
  };
}

async function findMissing(server: TestServer, emails: readonly string[]): Promise<string[]> {
  const stored = new Set<string>();
  for (let last = -1; stored.size > last; ) {
    last = stored.size;
    const { json } = await server.call("GET", `/users?limit=500&offset=${last}`);
    for (const { email } of json.data) stored.add(email);
  }
  return emails.filter((email) => !stored.has(email));
}

/** Expects one line in the log, not one for each request. */
async function expectOneErrorLine(server: TestServer): Promise<void> {
  const errors = (await logs(server)).filter(
    (line) => line["level"] === "error" && line["request_id"] === undefined,
  );
  expect(errors).toHaveLength(1);
  expect(JSON.stringify(errors)).toContain(basename(server.database));
}

test.skipIf(!againstBinary)(
  "writes return 503 until the file is put back when another file has replaced that of the database",
  async () => {
    await using server = await startServer();
    await newUser(server);
    const { database } = server;
    const [moved, other] = [`${database}.moved`, `${database}.other`];
    copyFileSync(database, other);
    const otherBytes = readFileSync(other);
    const { acknowledged, create } = makeClients(server);
    expect(await create()).toEqual(new Set([201]));
    const during = create();
    renameSync(database, moved);
    renameSync(other, database);
    await during;
    expect(await create()).toEqual(new Set([503]));
    await untilHealth(server, 503);
    renameSync(database, other);
    renameSync(moved, database);
    await untilHealth(server, 200);
    expect(await create()).toEqual(new Set([201]));
    await expectOneErrorLine(server);
    expect(readFileSync(other).equals(otherBytes)).toBe(true);
    await server.stop("SIGKILL");
    await server.restart();
    expect(await findMissing(server, acknowledged)).toEqual([]);
  },
  180_000,
);

test.skipIf(!againstBinary)(
  "commands fail when a server uses the database under another name",
  async () => {
    await using server = await startServer();
    await newUser(server);
    using directory = makeDirectory();
    const link = directory.at("link.db");
    linkSync(server.database, link);
    const copy = directory.at("copy.db");
    const commands = [
      ["backup", copy],
      ["token", "create", "b"],
      ["check"],
      ["export", "users"],
      ["restore", link, "--database-url", copy],
    ];
    const run = async (args: string[]) => {
      const { code, stdout, stderr } = await runBinary(args, { DATABASE_URL: link });
      expect([args, code, stdout]).toEqual([args, 1, ""]);
      expect(stderr).toContain(
        "the file has 2 names (hard links), and another process has it open",
      );
    };
    await Promise.all(commands.map(run));
    // By the name that the server uses, they succeed.
    const own = await runBinary(["check"], { DATABASE_URL: server.database });
    expect([own.code, own.stdout]).toEqual([0, "ok\n"]);
    expect(readdirSync(directory.path)).toEqual(["link.db"]);
  },
  180_000,
);
