// A changed bit of a value leaves the structure of a file intact: only its checksum tells.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  copyFileSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { runProgram } from "../support/program.ts";
import {
  failed,
  type Harness,
  imported,
  lines,
  makeHarness,
  reported,
  summaryOf,
} from "./harness.ts";

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
  writeFileSync(path, flippedAt(readFileSync(path), NAME));
}

/** Bytes of the checksum line of a backup. */
const LINE_BYTES = 82;

test("check and restore reject a backup when it or its checksum has changed", async () => {
  using world = await makeUsers();
  const backup = world.at("backup.db");
  await world.run("backup", backup);
  const content = readFileSync(backup);
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
    writeFileSync(backup, bytes);
    const restored = await world.run("restore", backup, "--database-url", target);
    const checked = await world.run("check", "--database-url", backup);
    expect([how, restored, checked]).toEqual([
      how,
      failed(`Cannot restore ${backup}: ${why}`),
      {
        code: 1,
        stdout: expect.stringContaining(`${why}\n`),
        stderr: expect.stringMatching(/backup\.db is damaged: \d problems? found\n$/),
      },
    ]);
  }
});

test.each([512, 65_536])("a backup with pages of %d bytes has a checksum", async (pageBytes) => {
  using world = await makeUsers();
  const [backup, plain] = [world.at("backup.db"), world.at("plain.db")];
  {
    using db = new Database(world.path);
    db.run("pragma journal_mode = delete");
    db.run(`pragma page_size = ${pageBytes}`);
    db.run("vacuum");
    db.run("vacuum into ?", [plain]);
  }
  const check = () => world.run("check", "--database-url", backup);
  await world.run("backup", backup);
  expect(readFileSync(backup).readUInt16BE(16)).toBe(pageBytes % 65_535);
  expect(await check()).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  expect((await world.run("check", "--database-url", plain)).stderr).toContain("no checksum");
  flipBit(backup);
  expect((await check()).code).toBe(1);
});

test("check and restore accept a backup that was renamed, and say that one has no checksum", async () => {
  using world = await makeUsers();
  const [made, backup] = [world.at("made.db"), world.at("backup.db")];
  expect(await world.run("backup", made)).toMatchObject({ code: 0, stderr: "" });
  // The checksum is in the file, and stays with it.
  renameSync(made, backup);
  const check = () => world.run("check", "--database-url", backup);
  const restore = () => world.run("restore", backup, "--database-url", world.at("restored.db"));
  expect(await check()).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  expect(await restore()).toMatchObject({ code: 0, stderr: "" });
  // One that was opened to write is a database, and no longer compared.
  const written = world.at("written.db");
  copyFileSync(backup, written);
  await world.run("token", "create", "a", "--database-url", written);
  const checked = await world.run("check", "--database-url", written);
  expect(checked).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  // As a backup of another program.
  truncateSync(backup, readFileSync(backup).length - LINE_BYTES);
  const none = "it has no checksum, so damage may go unnoticed";
  expect(await check()).toEqual({ code: 0, stdout: "ok\n", stderr: `${backup}: ${none}\n` });
  expect((await restore()).stderr).toBe(`Needs attention: ${none}\n`);
});

test.each<[string, (path: string) => void]>([
  ["a pipe", (path) => void Bun.spawnSync(["mkfifo", path])],
  ["a link to a device", (path) => symlinkSync("/dev/zero", path)],
  ["damaged", (path) => writeFileSync(path, `${"0".repeat(63)}g  users.ndjson\n`)],
  ["long", (path) => writeFileSync(path, `${"0".repeat(64)}  ${"x".repeat(1024)}\n`)],
])("import fails when the checksum of its file is %s", async (_what, make) => {
  using world = makeHarness();
  const file = world.at("users.ndjson");
  writeFileSync(file, lines([{ email: "a@b.cd", name: NAME }]));
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
  const exported = readFileSync(file);
  flipBit(file);
  const advice = "If you have edited it, delete that file";
  const differs = `Cannot import ${file}: it differs from ${checksum}. ${advice}`;
  expect(await other.run("import", "users", file)).toEqual(failed(differs));
  expect((await other.run("check")).code).toBe(1);
  writeFileSync(file, exported);
  const created = `Created the database ${other.path}`;
  expect(await other.run("import", "users", file)).toEqual(
    reported(created, summaryOf("users", 1)),
  );
  rmSync(checksum);
  expect(await other.run("import", "users", file)).toEqual(imported("users", 0, 1));
});
