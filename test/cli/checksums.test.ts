// A changed bit of a value leaves the structure of a file intact: only its checksum tells.
import { expect, test } from "bun:test";
import * as fs from "node:fs";
import { runSql } from "../sqlite/open-database.ts";
import { runProgram } from "../support/program.ts";
import { failed, type Harness, imported, lines, makeHarness } from "./harness.ts";

const NAME = "Grace Hopper";

async function makeUsers(): Promise<Harness> {
  const world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd", name: NAME }]), "import", "users");
  return world;
}

/** @returns the content with a changed bit, at this text */
function flippedAt(content: Buffer, text: string): Buffer {
  const at = content.indexOf(text);
  expect(at).toBeGreaterThan(0);
  const flipped = Buffer.from(content);
  flipped[at] = (flipped[at] ?? 0) ^ 1;
  return flipped;
}

function flipBit(path: string): void {
  fs.writeFileSync(path, flippedAt(fs.readFileSync(path), NAME));
}

/** Bytes of the checksum line of a backup. */
const LINE_BYTES = 82;

test("check and restore reject a backup when it or its checksum has changed", async () => {
  using world = await makeUsers();
  const backup = world.at("backup.db");
  await world.run("backup", backup);
  const content = fs.readFileSync(backup);
  const changeCounter = Buffer.from(content);
  changeCounter.writeUInt32BE(content.readUInt32BE(24) + 1, 24);
  const line = content.subarray(-LINE_BYTES).toString();
  const withLine = (text: string) =>
    Buffer.concat([content.subarray(0, -LINE_BYTES), Buffer.from(text)]);
  const damaged: Readonly<Record<string, Buffer>> = {
    "without the last byte": content.subarray(0, -1),
    "without half of the line": content.subarray(0, -LINE_BYTES / 2),
    "another name": flippedAt(content, "user-api-sha256"),
    "another first line feed": flippedAt(content, "\nuser-api-sha256"),
    "another last line feed": withLine(`${line.trimEnd()}\v`),
    "a hash in upper case": withLine(line.replace(/[0-9a-f]{64}/, (hash) => hash.toUpperCase())),
    "a byte behind the line": withLine(`${line}x`),
    "a page behind the line": withLine(line + "\0".repeat(4096)),
    "a page instead of the line": withLine("\0".repeat(4096)),
    "another change counter": changeCounter,
    "a changed bit of a value": flippedAt(content, NAME),
  };
  const why = "it differs from its checksum: it is damaged, or was changed";
  const target = world.at("restored.db");
  for (const [how, bytes] of Object.entries(damaged)) {
    fs.writeFileSync(backup, bytes);
    const restored = await world.run("restore", backup, "--database-url", target);
    expect([how, restored]).toEqual([how, failed(`Cannot restore ${backup}: ${why}`)]);
    const { code, stdout, stderr } = await world.run("check", "--database-url", backup);
    expect([how, code, stdout]).toEqual([how, 1, expect.stringContaining(`${why}\n`)]);
    expect(stderr).toMatch(/backup\.db is damaged: \d problems? found\n$/);
  }
});

for (const pageBytes of [512, 65_536])
  test(`a backup with pages of ${pageBytes} bytes has a checksum, also when it was renamed`, async () => {
    using world = await makeUsers();
    const [made, backup, written] = [world.at("made.db"), world.at("b.db"), world.at("written.db")];
    runSql(world.path, `pragma journal_mode = delete; pragma page_size = ${pageBytes}; vacuum`);
    expect(await world.run("backup", made)).toMatchObject({ code: 0, stderr: "" });
    fs.renameSync(made, backup);
    expect(fs.readFileSync(backup).readUInt16BE(16)).toBe(pageBytes % 65_535);
    const check = (path: string) => world.run("check", "--database-url", path);
    const restore = () => world.run("restore", backup, "--database-url", world.at("restored.db"));
    const sound = { code: 0, stdout: "ok\n", stderr: "" };
    expect(await check(backup)).toEqual(sound);
    expect(await restore()).toMatchObject({ code: 0, stderr: "" });
    fs.copyFileSync(backup, made);
    flipBit(made);
    expect((await check(made)).code).toBe(1);
    // One that was opened to write is a database, and no longer compared.
    fs.copyFileSync(backup, written);
    await world.run("token", "create", "a", "--database-url", written);
    expect(await check(written)).toEqual(sound);
    // As a backup of another program.
    fs.truncateSync(backup, fs.readFileSync(backup).length - LINE_BYTES);
    const none = "it has no checksum, so damage may go unnoticed";
    expect(await check(backup)).toEqual({ ...sound, stderr: `${backup}: ${none}\n` });
    expect((await restore()).stderr).toBe(`Needs attention: ${none}\n`);
  });

test.each<[string, (path: string) => void]>([
  ["a pipe", (path) => void Bun.spawnSync(["mkfifo", path])],
  ["a link to a device", (path) => fs.symlinkSync("/dev/zero", path)],
  ["damaged", (path) => fs.writeFileSync(path, `${"0".repeat(63)}g  users.ndjson\n`)],
  ["long", (path) => fs.writeFileSync(path, `${"0".repeat(64)}  ${"x".repeat(1024)}\n`)],
])("import fails when the checksum of its file is %s", async (_what, make) => {
  using world = makeHarness();
  const file = world.at("users.ndjson");
  fs.writeFileSync(file, lines([{ email: "a@b.cd", name: NAME }]));
  make(`${file}.sha256`);
  const why = `${file}.sha256 is not a checksum that can be read: move it away`;
  expect(await world.run("import", "users", file)).toEqual(failed(why));
});

test("import rejects an export when a bit of a value has changed", async () => {
  using world = await makeUsers();
  using other = makeHarness();
  const file = world.at("users.csv");
  const checksum = `${file}.sha256`;
  expect(await world.run("export", "users", "--output", file)).toMatchObject({ code: 0 });
  // The format is that of a common tool.
  const options = { cwd: world.at("."), env: { PATH: Bun.env["PATH"] } };
  const { stdout } = await runProgram(["sha256sum", "-c", checksum], options);
  expect(stdout).toBe("users.csv: OK\n");
  const exported = fs.readFileSync(file);
  flipBit(file);
  const advice = "If you have edited it, delete that file";
  const differs = `Cannot import ${file}: it differs from ${checksum}. ${advice}`;
  expect(await other.run("import", "users", file)).toEqual(failed(differs));
  expect((await other.run("check")).code).toBe(1);
  fs.writeFileSync(file, exported);
  expect(await other.run("import", "users", file)).toMatchObject({ code: 0 });
  fs.rmSync(checksum);
  expect(await other.run("import", "users", file)).toEqual(imported("users", 0, 1));
});
