// Replaces and overwrites the database file while the server uses them; file-watch.test.ts has all of the ways. A process can still write to a
// file without a name, but such writes are lost after a restart, so they must not be acknowledged.
import { expect, test } from "bun:test";
import {
  copyFileSync,
  linkSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { basename } from "node:path";
import { newEmail, newUser } from "../http/make.ts";
import { againstBinary, logs, startServer, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { runBinary } from "../support/program.ts";
import { untilHealth } from "./health.ts";

const CLIENTS = 8;

/** Clients that create users until they are disposed of. */
interface Writers extends AsyncDisposable {
  /** Emails that were acknowledged, and when their requests were sent. */
  readonly acknowledged: Map<string, number>;
  /** 0 if there was no response. */
  readonly statuses: { readonly sentMs: number; readonly status: number }[];
  /** Resolves after `count` more responses. */
  responses(count: number): Promise<void>;
  stop(): Promise<void>;
}

function startWriters(server: TestServer): Writers {
  const acknowledged = new Map<string, number>();
  const statuses: { sentMs: number; status: number }[] = [];
  let stopped = false;
  const stop = async () => {
    stopped = true;
    await Promise.all(clients);
  };
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!stopped) {
      const email = newEmail();
      const sentMs = performance.now();
      const status = await server.call("POST", "/users", { body: { email } }).then(
        (response) => response.status,
        () => 0,
      );
      statuses.push({ sentMs, status });
      if (status === 201) acknowledged.set(email, sentMs);
      // Errors return immediately: without a pause they would use all of the processor.
      else await Bun.sleep(20);
    }
  });
  return {
    acknowledged,
    statuses,
    async responses(count) {
      const wanted = statuses.length + count;
      while (statuses.length < wanted) await Bun.sleep(5);
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** @returns the number of responses by status, for requests sent after this moment */
function countAfter({ statuses }: Writers, momentMs: number): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { sentMs, status } of statuses) {
    if (sentMs > momentMs) counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

async function findMissing(server: TestServer, emails: Iterable<string>): Promise<string[]> {
  const stored = new Set<string>();
  for (let last = -1; stored.size > last; ) {
    last = stored.size;
    const { json } = await server.call("GET", `/users?limit=500&offset=${last}`);
    for (const { email } of json.data) stored.add(email);
  }
  return [...emails].filter((email) => !stored.has(email));
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
    await using writers = startWriters(server);
    await writers.responses(50);
    renameSync(database, moved);
    renameSync(other, database);
    const happenedMs = performance.now();
    await writers.responses(50);
    expect(Object.keys(countAfter(writers, happenedMs))).toEqual(["503"]);
    await untilHealth(server, 503);
    renameSync(database, other);
    const repairedMs = performance.now();
    renameSync(moved, database);
    await untilHealth(server, 200);
    await writers.responses(50);
    await writers.stop();

    await expectOneErrorLine(server);
    expect(countAfter(writers, repairedMs)[201]).toBeGreaterThan(0);
    expect(readFileSync(other).equals(otherBytes)).toBe(true);
    await server.stop("SIGKILL");
    await server.restart();
    expect(await findMissing(server, writers.acknowledged.keys())).toEqual([]);
  },
  120_000,
);

test.skipIf(!againstBinary)(
  "writes return 503 from then on, and change nothing, when another database has overwritten the file",
  async () => {
    await using other = await startServer();
    await newUser(other);
    await other.stop();
    const otherBytes = readFileSync(other.database);
    await using server = await startServer();
    await using writers = startWriters(server);
    await writers.responses(50);
    writeFileSync(server.database, otherBytes);
    const happenedMs = performance.now();
    await writers.responses(50);
    await untilHealth(server, 503);
    await writers.stop();
    expect(Object.keys(countAfter(writers, happenedMs))).toEqual(["503"]);
    await expectOneErrorLine(server);
    expect(readFileSync(server.database).equals(otherBytes)).toBe(true);
    await server.stop("SIGKILL");
    expect(readFileSync(server.database).equals(otherBytes)).toBe(true);
  },
  60_000,
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
  60_000,
);
