// Database files and backups that others have made: a command ends soon, with one line, and does nothing that the file
// says. test/cli/damage.test.ts has what they say about damage.
import { mkdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { writeIntact } from "../cli/intact-database.ts";
import { runSql } from "../sqlite/open-database.ts";
import { PAGE_BYTES, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectHarmless, forEachInput, makePicker } from "./hostile.ts";
import { test } from "./on-binary.ts";

let bytes: Buffer;

const commands = {
  check: "check",
  backup: "backup b.db",
  restore: "restore a.db --database-url r.db",
  serve: "serve",
  copy: "copy --to c.db",
  export: "export users --output e.db",
  restoreOver: "restore a.db",
};
type Command = keyof typeof commands;
/** The exit codes that are right. A command without any is not tried. */
type Expected = Readonly<Partial<Record<Command, readonly number[]>>>;

const anyCode: Expected = { check: [0, 1], backup: [0, 1], restore: [0, 1], serve: [0, 1] };
const rejected: Expected = { check: [1], backup: [1], restore: [1], serve: [1] };
/** What a server does not notice when it starts. */
const damaged: Expected = { ...rejected, serve: [0, 1] };

interface Input {
  readonly what: string;
  readonly expected: Expected;
  put(path: string): void;
}

function withSql(sql: string, expected: Expected): Input {
  const put = (path: string) => {
    writeFileSync(path, bytes);
    runSql(path, `${sql}; pragma journal_mode = delete`);
  };
  return { what: sql, expected, put };
}

/** @see https://www.sqlite.org/fileformat2.html#the_database_header */
function withHeader(what: string, place: number, hex: string, expected: Expected): Input {
  const header = Buffer.from(hex, "hex");
  const put = (path: string) =>
    writeFileSync(
      path,
      Buffer.concat([bytes.subarray(0, place), header, bytes.subarray(place + header.length)]),
    );
  return { what, expected, put };
}

/** Writes a page of a table whose children are a hundred times another page. */
function writeInterior(file: Buffer, page: number, child: number): void {
  const start = (page - 1) * PAGE_BYTES;
  const head = start + (page === 1 ? 100 : 0);
  const cells = 99;
  file.fill(0, head, start + PAGE_BYTES);
  file.writeUInt8(5, head);
  file.writeUInt16BE(cells, head + 3);
  file.writeUInt16BE(PAGE_BYTES - 5 * cells, head + 5);
  file.writeUInt32BE(child, head + 8);
  for (let at = 0; at < cells; at += 1) {
    const cell = PAGE_BYTES - 5 * (at + 1);
    file.writeUInt16BE(cell, head + 12 + 2 * at);
    file.writeUInt32BE(child, start + cell);
    file.writeUInt8(at + 1, start + cell + 4);
  }
}

/** A tree in the place of another one, in which every page refers a hundred times to the next level, or to itself. */
function withTree(table: string, levels: number, expected: Expected): Input {
  const put = (path: string) => {
    withSql("analyze", {}).put(path);
    const root = table === "sqlite_schema" ? 1 : rootPageOf(path, table);
    const copy = readFileSync(path);
    const start = (root - 1) * PAGE_BYTES + (root === 1 ? 100 : 0);
    // The last page is the root, or a child of it.
    const leaf = copy.readUInt8(start) === 5 ? copy.readUInt32BE(start + 8) : root;
    const first = copy.length / PAGE_BYTES + 1;
    const last = copy.subarray((leaf - 1) * PAGE_BYTES, leaf * PAGE_BYTES);
    const file = Buffer.concat([copy, Buffer.alloc(levels * PAGE_BYTES), last]);
    for (let level = 0; level < levels; level += 1)
      writeInterior(file, first + level, first + level + 1);
    writeInterior(file, root, levels === 0 ? root : first);
    file.writeUInt32BE(first + levels, 28);
    writeFileSync(path, file);
  };
  return { what: `${table} of ${levels} levels`, expected, put };
}

const evil = `evil" where 0; commit; vacuum into '../elsewhere/keys'; --`;
const max = "9223372036854775807";
const crafted: readonly Input[] = [
  withSql(`create table "${evil.replaceAll('"', '""')}" (a integer check (a > 0))`, rejected),
  withSql("pragma user_version = -1", rejected),
  withSql(`update sqlite_sequence set seq = ${max}`, damaged),
  withSql(`insert into buckets values ('users', 0, ${max}, ${max})`, damaged),
  withHeader("large pages", 16, "0001", rejected),
  withHeader("another file format", 18, "0909", anyCode),
  withHeader("most of a page is reserved", 20, "ff", anyCode),
  withHeader("more pages than there are", 28, "80000000", rejected),
  withHeader("a circle of free pages", 32, "00000003", { ...damaged, backup: [0] }),
  withHeader("another format of records", 44, "00000009", rejected),
  withHeader("another encoding", 56, "00000002", rejected),
  withTree("users", 0, damaged),
  withTree("users", 17, damaged),
  withTree("changes", 17, { ...damaged, copy: [1] }),
  ...["sqlite_schema", "sqlite_stat1", "feed"].map((table) => withTree(table, 17, rejected)),
];

function commandsFor(seed: number): Expected {
  const names = Object.keys(commands);
  return Object.fromEntries([seed, seed + 3].map((at) => [names[at % names.length], [0, 1]]));
}

/** Changes numbers that decide what is read, and whole pages. */
function withChanges(seed: number): Input {
  const put = (path: string) => {
    const { random, pick } = makePicker(seed);
    const copy = Buffer.from(bytes);
    for (let count = 1 + random(4); count > 0; count -= 1) {
      const page = random(copy.length / PAGE_BYTES) * PAGE_BYTES;
      const at = pick([random(112), page + random(16), page + random(PAGE_BYTES)]);
      const number = pick([0, 1, 2 ** 31, 2 ** 32 - 1, random(2 ** 32)]);
      copy.writeUInt8(pick([0, 1, 5, 127, 255, random(256)]), at);
      copy.writeUInt32BE(number, page + 4 * random(25));
      if (random(4) === 0) copy.fill(0, Math.max(100, page), page + PAGE_BYTES);
    }
    writeFileSync(path, copy);
    if (seed % 3 > 0) return;
    // What SQLite would roll forward or back.
    const wal = Buffer.from(bytes.subarray(0, PAGE_BYTES * 3));
    wal.writeUInt32BE(pick([0x377f0682, 0x377f0683, 0xd9d505f9]), 0);
    for (const place of [4, 8, 12, 16, 20, 32, 36])
      wal.writeUInt32BE(pick([3007000, 4096, 1, 2 ** 31, 65536]), place);
    writeFileSync(path + pick(["-wal", "-journal", "-shm"]), wal);
  };
  return { what: `change ${seed}`, expected: commandsFor(seed), put };
}

function putSized(path: string, content: string | Buffer, size: number): void {
  writeFileSync(path, content);
  truncateSync(path, size);
}

const places: readonly (readonly [what: string, put: Input["put"]])[] = [
  ["a pipe", (path) => void Bun.spawnSync(["mkfifo", path])],
  ["a directory", (path) => mkdirSync(path)],
  ["a large empty file", (path) => putSized(path, "", 2 ** 40)],
  ["a large file", (path) => putSized(path, bytes, 2 ** 36)],
  ["a file that is cut off in a page", (path) => putSized(path, bytes, 3 * PAGE_BYTES + 7)],
  ["an empty file", (path) => writeFileSync(path, "")],
  ["a text", (path) => writeFileSync(path, "SQLite format 3\0".repeat(99))],
  ...["/dev/zero", "/proc/self/mem", "/proc/kmsg", "a.db", "/none/x", "."].map(
    (to) => [`a link to ${to}`, (path: string) => symlinkSync(to, path)] as const,
  ),
];

test("commands end soon with one line when a file is hostile", async () => {
  using directory = makeDirectory();
  bytes = await writeIntact(directory.at("intact.db"), 400);
  const odd = places.map(([what, put], at) => ({ what, expected: commandsFor(at), put }));
  const inputs = [...crafted, ...odd, ...Array.from({ length: 100 }, (_, at) => withChanges(at))];
  await forEachInput(2, inputs, async ({ what, expected, put }) => {
    for (const [command, codes] of Object.entries(expected) as [Command, readonly number[]][])
      await expectHarmless({
        what,
        args: commands[command].split(" "),
        codes,
        made: /^([be]\.db|c\.db|r\.db(-serving)?|e\.db\.sha256|a\.db[-.].*)$/,
        prepare: (data) => put(`${data}/a.db`),
      });
  });
});
