// Database files and backups that others have made: a command ends soon, with one line, and does nothing that the file
// says. test/cli/damage.test.ts damages pages and bits.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { writeIntact } from "../cli/intact-database.ts";
import { againstBinary } from "../http/server.ts";
import { runSql } from "../sqlite/open-database.ts";
import { PAGE_BYTES, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { watchPeakMemory } from "../support/peak-memory.ts";
import { binary, startProgram } from "../support/program.ts";

const MAX_BYTES = 300e6;
/** A command that runs for longer does not end. */
const MAX_MS = 30_000;
/** Commands that run at the same time. */
const JOBS = 2;

const directory = makeDirectory();
const intact = directory.at("intact.db");
/** Where a file would write if it could. */
const elsewhere = directory.at("elsewhere");
let bytes: Buffer;
let rootOfUsers: number;

beforeAll(async () => {
  if (!againstBinary) return;
  mkdirSync(elsewhere);
  bytes = await writeIntact(intact, 400);
  rootOfUsers = rootPageOf(intact, "users");
});
afterAll(() => directory[Symbol.dispose]());

const commands = {
  check: ["check"],
  backup: ["backup", "b.db"],
  restore: ["restore", "a.db", "--database-url", "r.db"],
  serve: ["serve"],
  copy: ["copy", "--to", "c.db"],
};
type Command = keyof typeof commands;
/** The exit codes that are right. A command without any is not tried. */
type Expected = Readonly<Partial<Record<Command, readonly number[]>>>;

const anyCode: Expected = { check: [0, 1], backup: [0, 1], restore: [0, 1], serve: [0, 1] };
const rejected: Expected = { check: [1], backup: [1], restore: [1], serve: [1] };
/** What a server does not notice when it starts. */
const damaged: Expected = { ...rejected, serve: [0, 1] };

async function run(command: Command, path: string, cwd: string) {
  const env = { DATABASE_URL: path, PORT: "0" };
  const child = startProgram([binary, ...commands[command]], { env, cwd });
  using memory = watchPeakMemory(child.pid);
  const timer = setTimeout(() => child.kill("SIGKILL"), MAX_MS);
  // If it serves the file, a request must not end it either.
  const url = await child.listening;
  if (url !== null) await fetch(`${url}/api/v1/health`);
  child.kill(url === null ? "SIGCONT" : "SIGTERM");
  const outcome = await child.ended;
  clearTimeout(timer);
  return { ...outcome, maxBytes: memory.bytes() };
}

async function expectHandled(what: string, damage: Damage, expected: Expected): Promise<void> {
  for (const [command, codes] of Object.entries(expected) as [Command, readonly number[]][]) {
    using at = makeDirectory();
    const path = at.at("a.db");
    damage(path);
    const before = readdirSync(at.path);
    const { code, stderr, maxBytes } = await run(command, path, at.path);
    const message = `${what}: ${command}: ${stderr}`;
    expect(codes, message).toContain(code);
    expect(stderr, message).toMatch(
      code === 0
        ? /^([^\n]+ has no checksum, [^\n]+\n)?$/
        : /^Cannot [^\n]+\n$|^\S+ is damaged: [^\n]+\n$/,
    );
    expect(maxBytes, message).toBeLessThan(MAX_BYTES);
    const left = readdirSync(at.path).filter((name) => !before.includes(name));
    const own = /^(b\.db|r\.db(-serving)?|a\.db-(serving|wal|shm))$/;
    expect(
      left.filter((name) => !own.test(name)),
      message,
    ).toEqual([]);
    expect(readdirSync(elsewhere), message).toEqual([]);
  }
}

/** Writes a file. */
type Damage = (path: string) => void;

function withSql(sql: () => string): Damage {
  return (path) => {
    writeFileSync(path, bytes);
    runSql(path, `${sql()}; pragma journal_mode = delete`);
  };
}

function withBytes(change: (copy: Buffer) => unknown): Damage {
  return (path) => {
    const copy = Buffer.from(bytes);
    const changed = change(copy);
    writeFileSync(path, changed instanceof Uint8Array ? changed : copy);
  };
}

/** Places in the header of a file. @see https://www.sqlite.org/fileformat2.html#the_database_header */
const header = {
  pageSize: 16,
  version: 18,
  reserved: 20,
  pages: 28,
  freelist: 32,
  format: 44,
  encoding: 56,
};

/** Writes a page of a table whose children are other pages. */
function writeInterior(file: Buffer, page: number, children: readonly number[]): void {
  const start = (page - 1) * PAGE_BYTES;
  const head = start + (page === 1 ? 100 : 0);
  file.fill(0, head, start + PAGE_BYTES);
  file.writeUInt8(5, head);
  file.writeUInt16BE(children.length - 1, head + 3);
  file.writeUInt16BE(PAGE_BYTES - 5 * (children.length - 1), head + 5);
  file.writeUInt32BE(children.at(-1) ?? 0, head + 8);
  for (const [at, child] of children.slice(0, -1).entries()) {
    const cell = PAGE_BYTES - 5 * (at + 1);
    file.writeUInt16BE(cell, head + 12 + 2 * at);
    file.writeUInt32BE(child, start + cell);
    file.writeUInt8(at + 1, start + cell + 4);
  }
}

/** Puts a tree in the place of another one, in which every page refers a hundred times to the next one. */
function withEndlessTree(table: string): Damage {
  return (path) => {
    withSql(() => "analyze")(path);
    const root = table === "sqlite_schema" ? 1 : rootPageOf(path, table);
    const copy = readFileSync(path);
    const start = (root - 1) * PAGE_BYTES + (root === 1 ? 100 : 0);
    // The last page is the root, or a child of it.
    const leaf = copy.readUInt8(start) === 5 ? copy.readUInt32BE(start + 8) : root;
    const [first, levels] = [copy.length / PAGE_BYTES + 1, 17];
    const file = Buffer.concat([
      copy,
      Buffer.alloc(levels * PAGE_BYTES),
      copy.subarray((leaf - 1) * PAGE_BYTES, leaf * PAGE_BYTES),
    ]);
    for (let level = 0; level < levels; level += 1)
      writeInterior(file, first + level, new Array(100).fill(first + level + 1));
    writeInterior(file, root, new Array(100).fill(first));
    file.writeUInt32BE(first + levels, header.pages);
    writeFileSync(path, file);
  };
}

const crafted: readonly [string, Damage, Expected][] = [
  [
    "names a table after statements",
    withSql(() => {
      const evil = `evil" where 0; commit; vacuum into '${elsewhere}/keys'; --`;
      return `create table "${evil.replaceAll('"', '""')}" (a integer check (a > 0))`;
    }),
    rejected,
  ],
  ["has a negative version", withSql(() => "pragma user_version = -1"), rejected],
  [
    "claims the largest id",
    withSql(() => "update sqlite_sequence set seq = 9223372036854775807"),
    damaged,
  ],
  [
    "has counts for the largest buckets",
    withSql(
      () => "insert into buckets values ('users', 0, 9223372036854775807, 9223372036854775807)",
    ),
    damaged,
  ],
  [
    "numbers orders by the largest integer",
    withSql(() => "update orders set user_position = 9223372036854775807 where id = 9"),
    damaged,
  ],
  ["is cut off in a page", withBytes((copy) => copy.subarray(0, 3 * PAGE_BYTES + 7)), rejected],
  ["claims large pages", withBytes((copy) => copy.writeUInt16BE(1, header.pageSize)), rejected],
  [
    "claims another format of records",
    withBytes((copy) => copy.writeUInt32BE(9, header.format)),
    rejected,
  ],
  [
    "claims another encoding",
    withBytes((copy) => copy.writeUInt32BE(2, header.encoding)),
    rejected,
  ],
  [
    "claims another file format",
    withBytes((copy) => copy.writeUInt16BE(0x0909, header.version)),
    anyCode,
  ],
  [
    "claims to reserve most of a page",
    withBytes((copy) => copy.writeUInt8(255, header.reserved)),
    anyCode,
  ],
  [
    "claims more pages than it has",
    withBytes((copy) => copy.writeUInt32BE(2 ** 31, header.pages)),
    rejected,
  ],
  [
    "has a list of free pages that returns to itself",
    withBytes((copy) => copy.writeUInt32BE(3, header.freelist)),
    { ...damaged, backup: [0] },
  ],
  [
    "has a tree that returns to its root",
    withBytes((copy) => writeInterior(copy, rootOfUsers, new Array(50).fill(rootOfUsers))),
    damaged,
  ],
  ["has a schema without end", withEndlessTree("sqlite_schema"), rejected],
  ["has statistics without end", withEndlessTree("sqlite_stat1"), rejected],
  ["has a table of one row without end", withEndlessTree("feed"), rejected],
  ["has users without end", withEndlessTree("users"), damaged],
  ["has changes without end", withEndlessTree("changes"), { ...damaged, copy: [1] }],
];

test.if(againstBinary)(
  "commands end soon with one line when a file is hostile",
  async () => {
    const files = crafted.filter((_, at) => isLong || at % 3 === 0);
    const queue = files.values();
    const work = async () => {
      for (const [what, damage, expected] of queue) await expectHandled(what, damage, expected);
    };
    await Promise.all(Array.from({ length: JOBS }, work));
  },
  300_000,
);
