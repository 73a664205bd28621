// Files to import that others have made, and the memory of imports and exports. test/cli tests what they do.
import { beforeAll, expect } from "bun:test";
import { copyFileSync, writeFileSync } from "node:fs";
import { writeIntact } from "../cli/intact-database.ts";
import { againstBinary } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { watchPeakMemory } from "../support/peak-memory.ts";
import { binary, startProgram } from "../support/program.ts";
import { escapes, expectHarmless, forEachInput } from "./hostile.ts";
import { test, testIf } from "./on-binary.ts";

const JOBS = 3;

const at = makeDirectory();
const database = at.at("a.db");
beforeAll(async () => {
  if (againstBinary) await writeIntact(database, 40);
});

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

/** 27 kB each, 135 MB as text. */
const WIDE_USERS = 5000;
/** The process needs 85 MB without any records. */
const MAX_BYTES = 250 * 2 ** 20;

testIf(isLong)(
  "import and export need no more memory when the records are large and many",
  async () => {
    using directory = makeDirectory();
    const key = (at: number) => `${at}`.padStart(40, "k");
    const metadata = JSON.stringify(
      Object.fromEntries(Array.from({ length: 50 }, (_, at) => [key(at), "x".repeat(500)])),
    );
    const lines = Array.from(
      { length: WIDE_USERS },
      (_, at) => `{"email":"${at}@b.cd","metadata":${metadata}}\n`,
    );
    await Bun.write(directory.at("a.ndjson"), lines);
    const commands = [
      "import users a.ndjson",
      "export users --output b.csv",
      "export users --output b",
    ];
    const options = { env: { DATABASE_URL: directory.at("a.db") }, cwd: directory.path };
    for (const command of commands) {
      const child = startProgram([binary, ...command.split(" ")], options);
      using memory = watchPeakMemory(child.pid);
      expect((await child.ended).code, command).toEqual(0);
      expect(memory.bytes()).toBeGreaterThan(0);
      expect(memory.bytes()).toBeLessThan(MAX_BYTES);
    }
  },
);
