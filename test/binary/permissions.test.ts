// Files hold personal data, and a lock on them stops the server: only the user of the program may read them, whatever
// the umask of the shell is.
import { expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { againstBinary } from "../http/server.ts";
import { asNobody } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { binary, type Outcome, runBinary, runProgram, startProgram } from "../support/program.ts";

/** The command of a shell with an open umask. */
function withOpenUmask(...args: string[]): string[] {
  return ["sh", "-c", 'umask 0; exec "$@"', "sh", binary, ...args];
}

function runAsNobody(
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  return runProgram(asNobody(command), { env: { PATH: Bun.env["PATH"], ...env } });
}

async function idOfNobody(): Promise<number> {
  return Number((await runAsNobody(["id", "-u"])).stdout.trim());
}

/** @returns the permissions of all files in the directory, e.g. `600 a.db` */
function modesIn(path: string): string[] {
  const names = readdirSync(path, { recursive: true, encoding: "utf8" }).sort();
  return names.map((name) => `${(statSync(`${path}/${name}`).mode & 0o777).toString(8)} ${name}`);
}

test.skipIf(!againstBinary)(
  "only the owner can read the files that a server and commands write",
  async () => {
    using directory = makeDirectory();
    const env = { DATABASE_URL: directory.at("data/a.db"), PATH: Bun.env["PATH"] ?? "" };
    const run = async (...args: string[]) => {
      const { code, stderr } = await runProgram(withOpenUmask(...args), { env });
      expect([code, args, stderr]).toEqual([0, args, expect.anything()]);
    };
    await run("token", "create", "first");
    await run("backup", directory.at("backup.db"));
    await run("export", "users", "--output", directory.at("users.csv"));
    await Bun.write(directory.at("input"), "{}\n");
    chmodSync(directory.at("input"), 0o600);
    const rejects = ["--rejects", directory.at("rejects")];
    const { code } = await runProgram(
      withOpenUmask("import", "users", directory.at("input"), ...rejects),
      { env },
    );
    expect([code, existsSync(directory.at("rejects"))]).toEqual([1, true]);
    await run("copy", "--to", directory.at("copy.db"));
    await run("restore", directory.at("backup.db"));
    const server = startProgram(withOpenUmask("serve"), { env: { ...env, PORT: "0" } });
    expect(await server.listening).not.toBeNull();
    const modes = modesIn(directory.path);
    expect(modes).toContain("700 data");
    for (const suffix of ["", "-serving", "-shm", "-wal"])
      expect(modes).toContain(`600 data/a.db${suffix}`);
    server.kill("SIGTERM");
    await server.ended;
    const files = modes.filter((mode) => mode !== "700 data");
    expect(files.map((mode) => mode.slice(0, 3))).toEqual(files.map(() => "600"));
    expect(files.length).toBeGreaterThan(8);
  },
);

const isRoot = process.getuid?.() === 0;

test.skipIf(!againstBinary || !isRoot)(
  "serve names the file and its owner when another user has restored it",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("a.db");
    const env = { DATABASE_URL: path, PORT: "0" };
    await fillDatabase(path, 1);
    // As a server of root has left it.
    writeFileSync(`${path}-serving`, "", { mode: 0o600 });
    const nobody = await idOfNobody();
    chownSync(directory.path, nobody, -1);
    // As root, other programs create files that everybody can read.
    for (const mode of [0o644, 0o600]) {
      chmodSync(path, mode);
      const { code, stderr } = await runAsNobody([binary, "serve"], env);
      const owner = `belongs to user 0 with mode ${mode.toString(8)}`;
      const own = `this process runs as user ${nobody}`;
      const why = `permission denied: ${path} ${owner}, and ${own}`;
      expect([code, stderr]).toEqual([1, `Cannot open ${path}: ${why}\n`]);
    }
    chownSync(path, nobody, -1);
    const { stderr } = await runAsNobody([binary, "serve"], env);
    expect(stderr).toContain(`permission denied: ${path}-serving belongs to user 0`);
    expect(readdirSync(directory.path).sort()).toEqual(["a.db", "a.db-serving"]);
  },
);

test.skipIf(!againstBinary || !isRoot)(
  "a command says that permission is denied when it may not search a directory, or create one",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("data/a.db");
    await fillDatabase(path, 1);
    for (const command of ["check", "token list", "export users", "migrate"]) {
      const args = [binary, ...command.split(" ")];
      const { code, stderr } = await runAsNobody(args, { DATABASE_URL: path });
      expect([command, code, stderr]).toEqual([
        command,
        1,
        `Cannot open ${path}: permission denied\n`,
      ]);
    }
    const backups = directory.at("backups");
    const { stderr } = await runAsNobody([binary, "backup", "--directory", backups]);
    expect(stderr).toBe(`Cannot create ${backups}: permission denied\n`);
  },
);

test.skipIf(!againstBinary || !isRoot)(
  "a server of another user opens what root has restored from its archive",
  async () => {
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
      expect([await server.listening, server.output()]).toEqual([
        expect.any(String),
        expect.anything(),
      ]);
      server.kill("SIGTERM");
      await server.ended;
    };
    await serve();
    // Over the previous database; beside its lock file alone.
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
  },
);
