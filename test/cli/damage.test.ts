// `check`, and other commands on a database with damage that they must name. test/binary/hostile-files.test.ts damages any
// place.
import { beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { runSql } from "../sqlite/open-database.ts";
import { PAGE_BYTES, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import type { Outcome } from "../support/program.ts";
import { exportOf, failed, lines, makeHarness } from "./harness.ts";
import { writeIntact } from "./intact-database.ts";

const directory = makeDirectory();
const intact = directory.at("intact.db");
let bytes: Buffer;

beforeAll(async () => {
  bytes = await writeIntact(intact, 1000);
});

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

test("check continues, reports what it cannot check, and prints a summary when pages are damaged, and copy names the database", async () => {
  const damaged = Buffer.from(bytes);
  const at = bytes.indexOf("user.500@example.com");
  const start = at - (at % PAGE_BYTES);
  damaged.fill(0, start, start + PAGE_BYTES);
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
  const copied = await runOn(damaged, "copy --to c.db");
  const reason = /^Cannot copy to \S+\/c\.db: Cannot read \S+\/a\.db: the file is damaged\n$/;
  expect([copied.code, copied.stderr]).toEqual([1, expect.stringMatching(reason)]);
});

test("check names the row when its JSON is malformed, and export and copy say so", async () => {
  const damaged = Buffer.from(bytes);
  // The last of the rows with it.
  damaged.write("#", damaged.lastIndexOf('{"plan":"free"}'));
  const checked = await runOn(damaged, "check");
  expect(checked.stdout).toMatch(/^metadata of row \d+ of users is not a JSON object$/m);
  expect((await runOn(damaged, "export users --output a.ndjson")).stderr).toContain(
    "Cannot read the records after id 0: one has malformed JSON. Run `user-api check`\n",
  );
  const copied = await runOn(damaged, "copy --to c.db");
  expect(copied.stderr).toMatch(/: metadata of row \d+ of users is not a JSON object\n$/);
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
  const line = /^Cannot read the records after id \d+: they are not in order. Run .+\n$/;
  expect([code, stderr]).toEqual([1, expect.stringMatching(line)]);
});

test("changes fails when the file claims a last id that no change has", async () => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }, { email: "b@b.cd" }]), "import", "users");
  runSql(world.path, "update changes set id = 9007199254740991 where id = 2");
  const { code, stderr } = await world.run("changes");
  expect([code, stderr]).toEqual([1, "Cannot read the changes after 0: run `user-api check`\n"]);
});

test.each(["users", "orders"] as const)("check finds two %s with one reference", async (table) => {
  using world = makeHarness();
  const server = await world.serve();
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  await server.stop();
  await fillDatabase(world.path, 2, 2);
  const [first, second] = await exportOf(world, table);
  const bytes = readFileSync(world.path, "latin1");
  writeFileSync(world.path, bytes.replaceAll(second.reference, first.reference), "latin1");
  const { code, stdout } = await world.run("check");
  expect([code, stdout]).toEqual([1, `non-unique entry in index ${table}_by_reference\n`]);
});

const readers = ["check", "export users", "token list", "backup copy.db"];

const text = "This is a text, and not a database.\n".repeat(100);

test.each([
  ["the database is empty", "", readers],
  ["the file is not a SQLite database", text, [...readers, "token create a", "token revoke a"]],
])("commands leave the file as it is when %s", async (problem, content, commands) => {
  using world = makeHarness();
  await Bun.write(world.path, content);
  for (const command of commands) {
    const outcome = await world.run(...command.split(" "));
    expect(outcome).toEqual(failed(`Cannot open ${world.path}: ${problem}`));
    expect(await Bun.file(world.path).text()).toBe(content);
  }
});
