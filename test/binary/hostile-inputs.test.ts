// Files to import, places that are no files, and files that others create while a command runs.
import { afterAll, beforeAll, test } from "bun:test";
import {
  copyFileSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { writeIntact } from "../cli/intact-database.ts";
import { againstBinary } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { binary, startProgram } from "../support/program.ts";
import { escapes, expectHarmless, forEach } from "./hostile.ts";

const JOBS = 3;
const select = <Value>(values: readonly Value[]) =>
  values.filter((_, at) => isLong || at % 6 === 0);

/** Neither root nor the owner of a file. */
const OTHER = 4321;

const at = makeDirectory();
/** A database, and an archive of one. */
const database = at.at("a.db");
const archive = `file://${at.at("archive")}`;
beforeAll(async () => {
  if (!againstBinary) return;
  await writeIntact(database, 40);
  copyFileSync(database, at.at("archived.db"));
  mkdirSync(at.at("archive"));
  const env = { DATABASE_URL: at.at("archived.db"), ARCHIVE_URL: archive, PORT: "0" };
  const server = startProgram([binary, "serve"], { env });
  await server.listening;
  server.kill("SIGTERM");
  await server.ended;
});
afterAll(() => at[Symbol.dispose]());

const noise = Buffer.from(Array.from({ length: 1e5 }, (_, at) => (at * at * 7) % 251));
const user = '{"email":"a@b.cd"}';
const text = "\ufeffemail,name\na@b.cd,x\n";
const workbook = Buffer.concat([Buffer.from("PK\x03\x04\x14\0\x06\0"), noise]);
/** Each is imported as NDJSON and as CSV. */
const contents: readonly (() => string | Uint8Array)[] = [
  ...[noise, workbook, Buffer.from(text, "utf16le"), Buffer.from(text, "utf16le").swap16()].map(
    (each) => () => each,
  ),
  () => Buffer.alloc(1e6),
  () => Bun.gzipSync(new Uint8Array(200e6)),
  () => Buffer.from(`${user.replace("a@", "\xc0\xaf\xed\xa0\x80@")}\n`, "latin1"),
  () => `email,name,\n"a@b.cd",\0x\n${user}\0\n`,
  () => "x".repeat(60e6),
  () => "\n".repeat(15e6),
  () => ",".repeat(3e6),
  () => `email\n"${"x\n".repeat(1e7)}`,
  () => `email\n${'"'.repeat(1e7)}`,
  () => `{"email":"${"x".repeat(60e6)}"}\n`,
  () => '{"metadata":'.repeat(3e5),
  () => `{"email":"a@b.cd","metadata":${'{"a":'.repeat(5e4)}1${"}".repeat(5e4)}}\n`,
  () => `[${`${user},`.repeat(1e5)}${user}]`,
  () => `${Array.from({ length: 2e5 }, (_, at) => `c${at}`).join()}\n`,
  () => `{${Array.from({ length: 1e5 }, (_, at) => `"k${at}":1`).join()}}\n`,
  () => `email\n${",".repeat(3e6)}\n`,
  () => `${escapes},email\n${escapes},a@b.cd\n`,
  () =>
    `{"${JSON.stringify(escapes).slice(1, -1)}":1,"__proto__":{"email":1},"toString":"${escapes}"}\n`,
  () => `__proto__,constructor,email\n1,2,${escapes}\n`,
  () => `{"id":1e400,"email":"a@b.cd"}\n{"id":${"9".repeat(1e6)},"email":"a@b.cd"}\n`,
  () => "email\r".repeat(2e4),
  () => `${user}\n`.repeat(2e4),
];
const imports = [
  "import users",
  "import users --rejects r",
  "import orders --dry-run",
  "import users --update",
];

test.if(againstBinary)(
  "imports end with one line for each kind of problem",
  async () => {
    const inputs = contents.flatMap(
      (content) =>
        [
          [content, "ndjson"],
          [content, "csv"],
        ] as const,
    );
    await forEach(select(inputs), JOBS, async ([content, format], number) => {
      const path = at.at(`${number}.${format}`);
      writeFileSync(path, content());
      await expectHarmless({
        what: `${content}`,
        args: [...`${imports[number % imports.length]}`.split(" "), path],
        codes: [0, 1],
        maxLines: 22,
        made: /^(a\.db-\w+|r)$/,
        prepare: (data) => copyFileSync(database, `${data}/a.db`),
      });
    });
  },
  300_000,
);

/** Commands that write a file `o`, or next to it. */
const writers = [
  "export users --output o",
  "backup o",
  "copy --to o",
  "restore a.db --database-url o",
  `restore --from ${archive} --database-url o`,
  "import users in.ndjson --rejects o",
  `archive check --archive-url ${archive}`,
  "migrate --database-url o",
  "import users in.ndjson --database-url o",
];
/** What others put next to `o`, and next to each temporary file. */
const planted: Readonly<Record<string, (path: string) => void>> = {
  "a journal": (path) =>
    writeFileSync(
      `${path}-journal`,
      Buffer.concat([Buffer.from("d9d505f920a163d7", "hex"), noise]),
    ),
  "a WAL": (path) =>
    writeFileSync(`${path}-wal`, Buffer.concat([Buffer.from("377f0682002de218", "hex"), noise])),
  "an index of a WAL": (path) => writeFileSync(`${path}-shm`, noise),
  "a link to elsewhere": (path) => symlinkSync("../elsewhere/new", path),
  "links to elsewhere": (path) => {
    for (const suffix of [
      "-wal",
      "-journal",
      "-shm",
      "-serving",
      "-archive",
      ".sha256",
      ".partial",
    ])
      symlinkSync("../elsewhere/new", path + suffix);
  },
  "a directory": (path) => mkdirSync(`${path}-wal`),
};

/** As another user can in a shared directory. */
function plant(directory: string, put: (path: string) => void): void {
  const before = readdirSync(directory);
  for (const name of ["o", ...before.filter((each) => each.endsWith(".partial"))]) {
    try {
      put(join(directory, name));
    } catch {
      // It is there already, or has gone.
    }
  }
  for (const name of readdirSync(directory).filter((each) => /^o-|^o\.sha|^o$|partial./.test(each)))
    if (!before.includes(name)) lchownSync(join(directory, name), OTHER, OTHER);
}

test.skipIf(!againstBinary || process.getuid?.() !== 0)(
  "commands write nowhere else when others create files next to theirs",
  async () => {
    const inputs = writers.flatMap((command) =>
      Object.entries(planted).map(([what, put]) => [command, what, put] as const),
    );
    await forEach(select(inputs), JOBS, async ([command, what, put], number) => {
      await expectHarmless({
        what,
        args: command.split(" "),
        codes: [0, 1],
        maxLines: 3,
        made: /^(o|a\.db[-.])/,
        prepare(data) {
          copyFileSync(database, `${data}/a.db`);
          writeFileSync(`${data}/in.ndjson`, `${user}\n{"email":1}\n`);
          // A half of them are there before.
          if (number % 2 === 0) plant(data, put);
        },
        meanwhile: (data) => plant(data, put),
      });
    });
  },
  300_000,
);
