// Commands on a database whose pages or bits have changed on the disk. Each must succeed or print the reason in
// one line, and none may report a bug.
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, writeFileSync } from "node:fs";
import { PAGE_BYTES, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import type { Outcome } from "../support/program.ts";
import { makeRandom } from "../support/random.ts";
import { lines, makeHarness } from "./harness.ts";
import { writeIntact } from "./intact-database.ts";

const directory = makeDirectory();
const intact = directory.at("intact.db");
let bytes: Buffer;

beforeAll(async () => {
  bytes = await writeIntact(intact, 1000);
});
afterAll(() => directory[Symbol.dispose]());

const commands = [
  "check",
  "backup b.db",
  "export users --output a.ndjson",
  "export orders --output a.ndjson",
  "restore a.db --database-url r.db",
  "copy --to c.db",
  "token list",
];

async function runOn(damaged: Buffer, command: string): Promise<Outcome> {
  using at = makeDirectory();
  using world = makeHarness({ environment: { DATABASE_URL: at.at("a.db") } });
  writeFileSync(at.at("a.db"), damaged);
  const isFile = (word: string) => /\.(db|ndjson)$/.test(word);
  const args = command.split(" ").map((word) => (isFile(word) ? at.at(word) : word));
  const outcome = await world.run(...args);
  expect(readdirSync(at.path).filter((name) => name.includes(".partial"))).toEqual([]);
  return outcome;
}

async function expectHandled(damaged: Buffer, what: string): Promise<void> {
  for (const command of commands) {
    const { code, stderr } = await runOn(damaged, command);
    const message = `${what}: ${command}: ${stderr}`;
    expect([0, 1], message).toContain(code);
    expect(stderr, message).not.toContain("Unexpected");
    if (code === 1) expect(stderr.trimEnd().split("\n"), message).toHaveLength(1);
  }
  using at = makeDirectory();
  using world = makeHarness({ environment: { DATABASE_URL: at.at("a.db") } });
  writeFileSync(at.at("a.db"), damaged);
  const { code, stderr } = await world.serve().then(
    (serving) => serving.stop(),
    () => world.run("serve"),
  );
  if (code === 1) expect(stderr, what).toMatch(/^Cannot (open|write) .+\n$/);
  else expect([code, stderr], what).toEqual([0, ""]);
}

/** Pages all over the file. The first ones have the schema and the root pages of the tables. */
function somePages(): number[] {
  const pages = Array.from({ length: bytes.length / PAGE_BYTES }, (_, page) => page);
  const some = pages.filter((page) => page < 14 || page % 37 === 0);
  return isLong ? some : some.filter((page) => page % 3 === 0);
}

const random = makeRandom(20_261_120);
const damages: [what: string, damage: (damaged: Buffer, page: number) => void][] = [
  [
    "a page is zeros",
    // Not the file header, which identifies a user-api database.
    (damaged, page) =>
      void damaged.fill(0, page * PAGE_BYTES + (page === 0 ? 100 : 0), (page + 1) * PAGE_BYTES),
  ],
  [
    "bits have flipped",
    (damaged, page) => {
      for (let flipped = 0; flipped < 3; flipped += 1) {
        const at = page * PAGE_BYTES + random(PAGE_BYTES);
        damaged.writeUInt8(damaged.readUInt8(at) ^ (1 << random(8)), at);
      }
    },
  ],
];

test("user-api succeeds or prints one line when a page is zeros, or bits have flipped", async () => {
  for (const [at, page] of somePages().entries()) {
    for (const [what, damage] of isLong ? damages : [damages[at % 2] ?? damages[0]!]) {
      const damaged = Buffer.from(bytes);
      damage(damaged, page);
      await expectHandled(damaged, `${what} on page ${page}`);
    }
  }
}, 240_000);

function pageOf(text: string): number {
  return Math.floor(bytes.indexOf(text) / PAGE_BYTES);
}

test("check continues, reports what it cannot check, and prints a summary when pages are damaged", async () => {
  const damaged = Buffer.from(bytes);
  const page = pageOf(`{"note":"${"n".repeat(150)}"}`);
  damaged.fill(0, page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
  // The first occurrence can be in the unused part of an interior page.
  const order = damaged.lastIndexOf('"quantity":2');
  damaged.write("3", order + '"quantity":'.length);
  const { code, stdout, stderr } = await runOn(damaged, "check");
  const printed = stdout.trimEnd().split("\n");
  expect(printed).toContain("cannot check the size of users: the file is damaged");
  // Everything else is still checked.
  expect(stdout).toMatch(/^the total of order \d+ does not match its items$/m);
  expect(code).toBe(1);
  expect(stderr).toEndWith(`a.db is damaged: ${printed.length} problems found\n`);
});

test("check names the row when its JSON is malformed, and export and copy say so", async () => {
  const damaged = Buffer.from(bytes);
  // The last of the rows with this note.
  damaged.write("#", damaged.lastIndexOf('{"note":"nnn"}'));
  const checked = await runOn(damaged, "check");
  expect(checked.stdout).toContain("CHECK constraint failed in users\n");
  expect((await runOn(damaged, "export users --output a.ndjson")).stderr).toContain(
    "Cannot read the records after id 0: one has malformed JSON. Run `user-api check`\n",
  );
  expect((await runOn(damaged, "copy --to c.db")).stderr).toContain("a row of users is invalid");
});

test("export fails when pages of the file are in the wrong order", async () => {
  const damaged = Buffer.from(bytes);
  const start = (rootPageOf(intact, "users") - 1) * PAGE_BYTES;
  // The root refers to the first leaf in its first cell, and to the last one in its header.
  const cell = start + damaged.readUInt16BE(start + 12);
  const [first, last] = [damaged.readUInt32BE(cell), damaged.readUInt32BE(start + 8)];
  damaged.writeUInt32BE(last, cell);
  damaged.writeUInt32BE(first, start + 8);
  const { code, stderr } = await runOn(damaged, "export users --output a.ndjson");
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(
      /^Cannot read the records after id \d+: they are not in order. Run .+\n$/,
    ),
  ]);
});

test("changes fails when the file claims a last id that no change has", async () => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }, { email: "b@b.cd" }]), "import", "users");
  {
    using db = new Database(world.path);
    db.run("update changes set id = 9007199254740991 where id = 2");
  }
  const { code, stderr } = await world.run("changes");
  expect([code, stderr]).toEqual([1, "Cannot read the changes after 0: run `user-api check`\n"]);
});
