// Files to import, and files that others create while a command runs.
import { afterAll, beforeAll } from "bun:test";
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
import { binary, startProgram } from "../support/program.ts";
import { escapes, expectHarmless, forEachInput } from "./hostile.ts";
import { test, testIf } from "./on-binary.ts";

const JOBS = 3;
/** Neither root nor the owner of a file. */
const OTHER = 4321;

const at = makeDirectory();
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
const startingWith = (hex: string) => Buffer.concat([Buffer.from(hex, "hex"), noise]);
const user = '{"email":"a@b.cd"}';
const nested = `${'{"a":'.repeat(5e4)}1${"}".repeat(5e4)}`;
/** Each is imported as NDJSON and as CSV. */
const contents: readonly (() => string | Uint8Array)[] = [
  // A workbook.
  () => startingWith("504b030414000600"),
  () => Buffer.from("\ufeffemail,name\na@b.cd,x\n", "utf16le"),
  () => Buffer.alloc(1e6),
  () => Bun.gzipSync(new Uint8Array(200e6)),
  () => Buffer.from(`${user.replace("a@", "\xc0\xaf\xed\xa0\x80@")}\n`, "latin1"),
  () => `email,name,\n"a@b.cd",\0x\n${user}\0\n`,
  () => "x".repeat(60e6),
  () => "\n".repeat(15e6),
  () => "email\r".repeat(2e4),
  () => `email\n"${"x\n".repeat(1e7)}`,
  () => `email\n${'"'.repeat(1e7)}`,
  () => `email\n${",".repeat(3e6)}\n`,
  () => `{"email":"${"x".repeat(60e6)}"}\n`,
  () => '{"metadata":'.repeat(3e5),
  () => `{"email":"a@b.cd","metadata":${nested}}\n`,
  () => `[${`${user},`.repeat(1e5)}${user}]`,
  () => `${Array.from({ length: 2e5 }, (_, at) => `c${at}`).join()}\n`,
  () => `{${Array.from({ length: 1e5 }, (_, at) => `"k${at}":1`).join()}}\n`,
  () => `${escapes},__proto__,email\n${escapes},1,a@b.cd\n`,
  () => `{${JSON.stringify(escapes)}:1,"__proto__":{"email":1},"toString":"${escapes}"}\n`,
  () => `{"id":1e400,"email":"a@b.cd"}\n{"id":${"9".repeat(1e6)},"email":"a@b.cd"}\n`,
  () => `${user}\n`.repeat(2e4),
];
const imports = [
  ...["import users", "import users --rejects r", "import users --update", "import orders"],
  "import orders --dry-run",
];

test("imports end with one line for each kind of problem", async () => {
  const formats = ["ndjson", "csv"];
  const inputs = contents.flatMap((make) => formats.map((format) => ({ make, format })));
  await forEachInput(JOBS, inputs, async ({ make, format }, number) => {
    const path = at.at(`${number}.${format}`);
    writeFileSync(path, make());
    await expectHarmless({
      what: `${make}`,
      args: [...`${imports[number % imports.length]}`.split(" "), path],
      codes: [0, 1],
      maxLines: 22,
      made: /^(a\.db-\w+|r)$/,
      prepare: (data) => copyFileSync(database, `${data}/a.db`),
    });
  });
});

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
const putNoise = (hex: string) => (path: string) =>
  writeFileSync(path, startingWith(hex), { flag: "wx" });
const putLink = (path: string) => symlinkSync("../elsewhere/new", path);
/** What others put next to `o`, and next to each temporary file: suffixes, and what creates it. */
const planted: readonly [suffixes: readonly string[], put: (path: string) => void][] = [
  [["-journal"], putNoise("d9d505f920a163d7")],
  [["-wal"], putNoise("377f0682002de218")],
  [["-shm"], putNoise("")],
  [[""], putLink],
  [["-wal", "-journal", "-shm", "-serving", "-archive", ".sha256", ".partial"], putLink],
  [["-wal"], mkdirSync],
];

/** As another user can in a shared directory. */
function plant(directory: string, [suffixes, put]: (typeof planted)[number]): void {
  const before = readdirSync(directory);
  const names = ["o", ...before.filter((each) => /-\w+\.partial$/.test(each))];
  for (const name of names.flatMap((each) => suffixes.map((suffix) => each + suffix))) {
    const path = join(directory, name);
    try {
      put(path);
      lchownSync(path, OTHER, OTHER);
    } catch {
      // It is there already, or has gone.
    }
  }
}

testIf(process.getuid?.() === 0)("commands use no file that others plant", async () => {
  const inputs = writers.flatMap((command) =>
    planted.flatMap((each) => [true, false].map((isFirst) => ({ command, each, isFirst }))),
  );
  await forEachInput(JOBS, inputs, async ({ command, each, isFirst }) => {
    await expectHarmless({
      what: `${each}`,
      args: command.split(" "),
      codes: [0, 1],
      maxLines: 3,
      made: /^(o|a\.db[-.])/,
      prepare(data) {
        copyFileSync(database, `${data}/a.db`);
        writeFileSync(`${data}/in.ndjson`, `${user}\n{"email":1}\n`);
        if (isFirst) plant(data, each);
      },
      meanwhile: (data) => plant(data, each),
    });
  });
});
