// Database files and backups that others have made: a command ends soon, with one line, and does nothing that the file
// says. test/cli/damage.test.ts damages pages and bits.
import { afterAll, beforeAll, test } from "bun:test";
import { mkdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { writeIntact } from "../cli/intact-database.ts";
import { againstBinary } from "../http/server.ts";
import { runSql } from "../sqlite/open-database.ts";
import { PAGE_BYTES, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { expectHarmless, forEach, makePicker } from "./hostile.ts";

/** Files that are changed at random. */
const CHANGED = isLong ? 60 : 4;

const directory = makeDirectory();
const intact = directory.at("intact.db");
let bytes: Buffer;
let rootOfUsers: number;

beforeAll(async () => {
  if (!againstBinary) return;
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
  export: ["export", "users", "--output", "e.db"],
  restoreOver: ["restore", "a.db"],
};
type Command = keyof typeof commands;
/** The exit codes that are right. A command without any is not tried. */
type Expected = Readonly<Partial<Record<Command, readonly number[]>>>;

const anyCode: Expected = { check: [0, 1], backup: [0, 1], restore: [0, 1], serve: [0, 1] };
const rejected: Expected = { check: [1], backup: [1], restore: [1], serve: [1] };
/** What a server does not notice when it starts. */
const damaged: Expected = { ...rejected, serve: [0, 1] };

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
      const evil = `evil" where 0; commit; vacuum into '../elsewhere/keys'; --`;
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

/** Places in a file where numbers decide what is read. */
function changeAtRandom(seed: number): Damage {
  return (path) => {
    const { random, pick } = makePicker(seed);
    withBytes((copy) => {
      const wal = Buffer.from(copy.subarray(0, PAGE_BYTES * 3));
      for (let count = 1 + random(4); count > 0; count -= 1) {
        const page = random(copy.length / PAGE_BYTES) * PAGE_BYTES;
        const at = pick([
          random(100),
          100 + random(12),
          page + random(16),
          page + random(PAGE_BYTES),
        ]);
        copy.writeUInt8(pick([0, 1, 5, 127, 255, random(256)]), at);
        copy.writeUInt32BE(
          pick([0, 1, 2 ** 31, 2 ** 32 - 1, random(2 ** 32)]),
          page + 4 * random(25),
        );
      }
      // What SQLite would roll forward or back.
      for (const suffix of [pick(["-wal", "-journal", "-shm"])].filter(() => seed % 3 === 0)) {
        wal.writeUInt32BE(pick([0x377f0682, 0x377f0683, 0xd9d505f9]), 0);
        for (const place of [4, 8, 12, 16, 20, 32, 36])
          wal.writeUInt32BE(pick([3007000, 4096, 1, 2 ** 31, 65536]), place);
        writeFileSync(path + suffix, wal);
      }
    })(path);
  };
}

const places: readonly [string, Damage][] = [
  ["a pipe", (path) => void Bun.spawnSync(["mkfifo", path])],
  ["a directory", (path) => mkdirSync(path)],
  [
    "a large empty file",
    (path) => {
      writeFileSync(path, "");
      truncateSync(path, 2 ** 40);
    },
  ],
  [
    "a large file",
    (path) => {
      writeFileSync(path, bytes);
      truncateSync(path, 2 ** 36);
    },
  ],
  ["an empty file", (path) => writeFileSync(path, "")],
  ["a text", (path) => writeFileSync(path, "SQLite format 3\0".repeat(99))],
  ...[
    "/dev/zero",
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "/proc/kmsg",
    "a.db",
    "/none/x",
    ".",
  ].map((to): [string, Damage] => [`a link to ${to}`, (path) => symlinkSync(to, path)]),
];

/** Two commands for each seed. */
function randomCommands(seed: number): Expected {
  const codes = Object.entries({ ...anyCode, copy: [0, 1], export: [0, 1], restoreOver: [0, 1] });
  return Object.fromEntries(
    [0, 3].flatMap((more) => codes.slice((seed + more) % codes.length).slice(0, 1)),
  );
}

test.if(againstBinary)(
  "commands end soon with one line when a file is hostile",
  async () => {
    const changed = Array.from({ length: CHANGED }, (_, seed): [string, Damage, Expected] => [
      `is changed by ${seed}`,
      changeAtRandom(seed),
      randomCommands(seed),
    ]);
    const odd = places.map(([what, put], at): [string, Damage, Expected] => [
      `is ${what}`,
      put,
      randomCommands(at),
    ]);
    const files = [...crafted, ...odd].filter((_, at) => isLong || at % 4 === 0);
    await forEach([...files, ...changed], 2, async ([what, damage, expected]) => {
      for (const [command, codes] of Object.entries(expected) as [Command, readonly number[]][])
        await expectHarmless({
          what,
          args: commands[command],
          codes,
          made: /^([be]\.db|c\.db|r\.db(-serving)?|e\.db\.sha256|a\.db[-.].*)$/,
          prepare: (data) => damage(`${data}/a.db`),
        });
    });
  },
  300_000,
);
