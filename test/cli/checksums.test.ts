// A changed bit of a value leaves the structure of a file intact: only its checksum tells.
import { expect, test } from "bun:test";
import { readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { runProgram } from "../program.ts";
import { failed, type Harness, lines, makeHarness, reported } from "./harness.ts";

const NAME = "Grace Hopper";

async function makeUsers(): Promise<Harness> {
  const world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd", name: NAME }]), "import", "users");
  return world;
}

/** Changes a bit of the name of the user. */
function flipBit(path: string): void {
  const content = readFileSync(path);
  const at = content.indexOf(NAME);
  expect(at).toBeGreaterThan(0);
  content[at] = (content[at] ?? 0) ^ 1;
  writeFileSync(path, content);
}

test("check and restore reject a backup when a bit of a value has changed", async () => {
  using world = await makeUsers();
  const made = world.at("made.db");
  const backup = world.at("backup.db");
  expect(await world.run("backup", made)).toMatchObject({ code: 0, stderr: "" });
  // The checksum is in the file, and stays with it.
  renameSync(made, backup);
  const check = () => world.run("check", "--database-url", backup);
  const restore = () => world.run("restore", backup, "--database-url", world.at("restored.db"));
  expect(await check()).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  expect(await restore()).toMatchObject({ code: 0, stderr: "" });
  flipBit(backup);
  const why = "it differs from its checksum: it is damaged, or was changed";
  expect(await restore()).toEqual(failed(`Cannot restore ${backup}: ${why}`));
  expect(await check()).toEqual({
    code: 1,
    stdout: `${why}\n`,
    stderr: `${backup} is damaged: 1 problem found\n`,
  });
  // As a backup of another program.
  const line = readFileSync(backup, "latin1").split("\n").at(-2) ?? "";
  expect(line).toMatch(/^user-api-sha256 [0-9a-f]{64}$/);
  truncateSync(backup, readFileSync(backup).length - line.length - 2);
  const none = "it has no checksum, so damage may go unnoticed";
  expect(await check()).toEqual({ code: 0, stdout: "ok\n", stderr: `${backup}: ${none}\n` });
  expect((await restore()).stderr).toBe(`Needs attention: ${none}\n`);
});

test("a backup that was opened to write is a database, and no longer compared with its checksum", async () => {
  using world = await makeUsers();
  const backup = world.at("backup.db");
  await world.run("backup", backup);
  await world.run("token", "create", "a", "--database-url", backup);
  expect(await world.run("check", "--database-url", backup)).toEqual({
    ...reported(),
    stdout: "ok\n",
  });
});

test.each(["ndjson", "csv", "tsv"])(
  "import rejects an export when a bit of a value has changed (%s)",
  async (format) => {
    using world = await makeUsers();
    using other = makeHarness();
    const file = world.at(`users.${format}`);
    const checksum = `${file}.sha256`;
    expect(await world.run("export", "users", "--output", file)).toMatchObject({ code: 0 });
    // The format is that of a common tool.
    const { stdout } = await runProgram(["sha256sum", "-c", checksum], {
      cwd: world.at("."),
      env: { PATH: Bun.env["PATH"] },
    });
    expect(stdout).toBe(`users.${format}: OK\n`);
    const exported = readFileSync(file);
    flipBit(file);
    const advice = "If you have edited it, delete that file";
    const differs = `Cannot import ${file}: it differs from ${checksum}. ${advice}`;
    expect(await other.run("import", "users", file)).toEqual(failed(differs));
    expect((await other.run("check")).code).toBe(1);
    writeFileSync(file, exported);
    const summary = "Imported 1 user (0 unchanged, 0 rejected)";
    const created = `Created the database ${other.path}`;
    expect(await other.run("import", "users", file)).toEqual(reported(created, summary));
    rmSync(checksum);
    const unchanged = "Imported 0 users (1 unchanged, 0 rejected)";
    const none = `${file} has no .sha256 next to it, so damage may go unnoticed`;
    expect(await other.run("import", "users", file)).toEqual(reported(none, unchanged));
  },
);
