import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import type { Environment } from "../../src/base/secret.ts";
import { openInput } from "../../src/cli/system/streams.ts";
import type { Backend, Store } from "../../src/domain/store.ts";
import { backendOf } from "../../src/main.ts";
import { openSqlite } from "../../src/sqlite/backend.ts";
import { migrate } from "../../src/sqlite/file/migrate.ts";
import { makeDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";
import { type Outcome, runProgram } from "../support/program.ts";
import { type RunningHere, runHere, sockets } from "../support/run-here.ts";

/** The outcome of a command that prints lines on stderr and fails. */
export function failed(...printed: string[]): Outcome {
  return { code: 1, stdout: "", stderr: printed.map((line) => `${line}\n`).join("") };
}

/** The outcome of a command that prints lines on stderr and succeeds. */
export function reported(...printed: string[]): Outcome {
  return { ...failed(...printed), code: 0 };
}

export function summaryOf(table: "users" | "orders", created: number, unchanged = 0, rejected = 0) {
  const noun = created === 1 ? table.slice(0, -1) : table;
  const [first, second, third] = [created, unchanged, rejected].map((count) =>
    count.toLocaleString("en"),
  );
  return `Imported ${first} ${noun} (${second} unchanged, ${third} rejected)`;
}

export function imported(...counts: Parameters<typeof summaryOf>): Outcome {
  return reported(summaryOf(...counts));
}

export type Harness = ReturnType<typeof makeHarness>;

export interface Options {
  readonly environment?: Environment;
  readonly openStore?: Backend["open"];
  readonly backUp?: Backend["backUp"];
  readonly openFileLimit?: number;
  readonly memoryBytes?: number;
}

export function lines(records: readonly unknown[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}

export async function createToken(world: Harness, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await world.run("token", "create", ...args);
  if (code !== 0) throw new Error(`Cannot create: ${stderr}`);
  return stdout.trim();
}

export async function exportOf(world: Harness, table: "users" | "orders"): Promise<any[]> {
  return parsedLines((await world.run("export", table)).stdout);
}

/** @returns the value of each line, all of which must be complete. `Bun.JSONL` accepts incomplete ones. */
export function parsedLines(ndjson: string): any[] {
  const rows = ndjson.split("\n");
  expect(rows.pop()).toBe("");
  return rows.map((row) => JSON.parse(row));
}

/** Creates users, each of which is a change. */
export async function fill({ path, clock }: Harness, count: number): Promise<void> {
  await withStore(
    path,
    async ({ users }) => {
      for (let at = 0; at < count; at += 1) {
        const email = `${crypto.randomUUID()}@b.cd`;
        await users.create({ email, reference: null, name: null, metadata: {} }, null, "laptop");
      }
    },
    { now: () => clock.time },
  );
}

/** @returns a function that opens SQLite, with other parts */
export function openWith(change: (store: Store) => Partial<Store>): Backend["open"] {
  return async (options) => {
    const store = await openSqlite(options);
    return { ...store, ...change(store) };
  };
}

/** Runs commands in this process, with a database in a temporary directory and a fixed clock. */
export function makeHarness(options: Options = {}) {
  const { environment = {}, openStore, backUp } = options;
  const { openFileLimit = 65_536, memoryBytes = 2 ** 40 } = options;
  const directory = makeDirectory();
  const path = directory.at("data/test.db");
  const stdin: { chunks: readonly Uint8Array[] } = { chunks: [] };
  const clock = { time: new Date("2026-11-20T18:57:03.120Z") };
  const variables = { DATABASE_URL: path, PORT: "0", ...environment };

  async function* pieces(): AsyncGenerator<Uint8Array> {
    yield* stdin.chunks;
  }

  const begin = (...args: string[]): RunningHere =>
    runHere(args, {
      environment: variables,
      backendOf(url) {
        const backend = backendOf(url);
        return { ...backend, open: openStore ?? backend.open, backUp: backUp ?? backend.backUp };
      },
      now: () => clock.time,
      openInput: (path) => (path === null ? pieces() : openInput(path)),
      memoryBytes,
      sockets: { ...sockets, limitOpenFiles: () => openFileLimit },
    });

  return {
    path,
    /** @returns the path of another file, in the directory above that of the database */
    at: directory.at,
    clock,
    stdin,
    begin,
    run: (...args: string[]) => begin(...args).ended,
    feed(input: string | Uint8Array, ...args: string[]) {
      stdin.chunks = [typeof input === "string" ? new TextEncoder().encode(input) : input];
      return begin(...args).ended;
    },
    /** Runs a line of bash on the same database. In it, `"$@"` is the program, in other processes. */
    shell(line: string) {
      const program = [process.execPath, `${import.meta.dir}/../../src/main.ts`];
      const env = { PATH: Bun.env["PATH"], ...variables };
      return runProgram(["bash", "-c", line, "bash", ...program], { env });
    },
    async serve(...args: string[]) {
      const running = begin("serve", ...args);
      return { ...running, url: await running.listening() };
    },
    isFree: () => withStore(path, async () => true, { mode: "serve" }).catch(() => false),
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

/** Likewise, with a database that has no rows. */
export function makeHarnessWithDatabase(options: Options = {}) {
  const world = makeHarness(options);
  mkdirSync(dirname(world.path));
  using db = new Database(world.path, { create: true });
  migrate(db);
  return world;
}
