// Files hold personal data, and a lock on them stops the server: only the user of the program may read them, whatever
// the umask of the shell is.
import { expect } from "bun:test";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { asNobody } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { binary, type Outcome, runBinary, runProgram, startProgram } from "../support/program.ts";
import { urlOf } from "./archived-place.ts";
import { test, testIf } from "./on-binary.ts";

function withOpenUmask(...args: string[]): string[] {
  return ["sh", "-c", 'umask 0; exec "$@"', "sh", binary, ...args];
}

/** @returns the permissions of all files in the directory, e.g. `600 a.db` */
function modesIn(path: string): string[] {
  const names = readdirSync(path, { recursive: true, encoding: "utf8" }).sort();
  return names.map((name) => `${(statSync(`${path}/${name}`).mode & 0o777).toString(8)} ${name}`);
}

test("only the owner can read the files that a server and commands write", async () => {
  using directory = makeDirectory();
  const { at } = directory;
  const env = { DATABASE_URL: at("data/a.db"), PATH: Bun.env["PATH"] ?? "", PORT: "0" };
  writeFileSync(at("input"), "{}\n", { mode: 0o600 });
  for (const [args, expected] of [
    [["token", "create", "first"], 0],
    [["backup", at("backup.db")], 0],
    [["export", "users", "--output", at("users.csv")], 0],
    [["import", "users", at("input"), "--rejects", at("rejects")], 1],
    [["copy", "--to", at("copy.db")], 0],
    [["restore", at("backup.db")], 0],
  ] as const) {
    const { code, stderr } = await runProgram(withOpenUmask(...args), { env });
    expect([code, args, stderr]).toEqual([expected, args, expect.anything()]);
  }
  const server = startProgram(withOpenUmask("serve"), { env });
  expect(await server.listening).not.toBeNull();
  const modes = modesIn(directory.path);
  expect(modes).toContain("700 data");
  for (const name of ["rejects", ...["", "-serving", "-shm", "-wal"].map((it) => `data/a.db${it}`)])
    expect(modes).toContain(`600 ${name}`);
  server.kill("SIGTERM");
  await server.ended;
  const files = modes.filter((mode) => mode !== "700 data");
  expect(files.map((mode) => mode.slice(0, 3))).toEqual(files.map(() => "600"));
  expect(files.length).toBeGreaterThan(8);
});

const onRoot = testIf(process.getuid?.() === 0);

function runAsNobody(
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  return runProgram(asNobody(command), { env: { PATH: Bun.env["PATH"], ...env } });
}

async function idOfNobody(): Promise<number> {
  return Number((await runAsNobody(["id", "-u"])).stdout.trim());
}

onRoot("commands say that permission is denied, and name the owner of a file", async () => {
  using directory = makeDirectory();
  const path = directory.at("data/a.db");
  await fillDatabase(path, 1);
  // As a server of root has left it.
  writeFileSync(`${path}-serving`, "", { mode: 0o600 });
  // A directory that it may not search, or create.
  for (const command of ["check", "export users", "migrate"]) {
    const args = [binary, ...command.split(" ")];
    const { code, stderr } = await runAsNobody(args, { DATABASE_URL: path });
    expect([command, code, stderr]).toEqual([
      command,
      1,
      `Cannot open ${path}: permission denied\n`,
    ]);
  }
  const backups = directory.at("backups");
  const backingUp = await runAsNobody([binary, "backup", "--directory", backups]);
  expect(backingUp.stderr).toBe(`Cannot create ${backups}: permission denied\n`);

  const nobody = await idOfNobody();
  for (const name of [directory.path, directory.at("data")]) chownSync(name, nobody, -1);
  const serve = () => runAsNobody([binary, "serve"], { DATABASE_URL: path, PORT: "0" });
  // As root, other programs create files that everybody can read.
  for (const mode of [0o644, 0o600]) {
    chmodSync(path, mode);
    const { code, stderr } = await serve();
    const owner = `belongs to user 0 with mode ${mode.toString(8)}`;
    const why = `permission denied: ${path} ${owner}, and this process runs as user ${nobody}`;
    expect([code, stderr]).toEqual([1, `Cannot open ${path}: ${why}\n`]);
  }
  chownSync(path, nobody, -1);
  expect((await serve()).stderr).toContain(`permission denied: ${path}-serving belongs to user 0`);
  expect(readdirSync(directory.at("data")).sort()).toEqual(["a.db", "a.db-serving"]);
});

onRoot("a server of another user opens what root has restored from its archive", async () => {
  using directory = makeDirectory();
  const archive = directory.at("archive");
  const env = {
    DATABASE_URL: directory.at("data/a.db"),
    ARCHIVE_URL: `file://${archive}`,
    PATH: Bun.env["PATH"] ?? "",
    PORT: "0",
  };
  const nobody = await idOfNobody();
  for (const path of [directory.path, archive, directory.at("data")]) {
    mkdirSync(path, { recursive: true });
    chownSync(path, nobody, -1);
  }
  const serve = async () => {
    const server = startProgram(asNobody([binary, "serve"]), { env });
    await urlOf(server);
    server.kill("SIGTERM");
    await server.ended;
  };
  await serve();
  // Over the previous database; next to its lock file alone.
  for (const hasPrevious of [true, false]) {
    if (!hasPrevious) rmSync(env.DATABASE_URL);
    const { code, stderr } = await runBinary(["restore", "--from", env.ARCHIVE_URL], env);
    expect([code, stderr]).toEqual([0, expect.anything()]);
    await serve();
  }
  const marker = `${env.DATABASE_URL}-archive`;
  chownSync(marker, 0, -1);
  const { code, stderr } = await runAsNobody([binary, "serve"], env);
  const owner = `${marker} belongs to user 0 with mode 600`;
  const why = `permission denied: ${owner}, and this process runs as user ${nobody}`;
  expect([code, stderr]).toEqual([1, `ARCHIVE_URL: ${why}\n`]);
});
