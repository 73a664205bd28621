/**
 * A PostgreSQL server made of what is installed: on a free port of the loopback, in a temporary folder, as
 * somebody who is not root. It ends with this process, however that ends.
 */
import { chownSync, mkdtempSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { SQL } from "bun";

/** The server refuses to run as root; nobody is everywhere. */
const NOBODY = "nobody";
const TIMEOUT_MS = 20_000;

/** It is gone, with its data, when it is disposed of. */
export interface Instance extends AsyncDisposable {
  /** URL of its first database. */
  readonly url: string;
  /** Folder of its programs. */
  readonly programs: string;
  readonly data: string;
  /** Resolves when it answers. */
  start(): Promise<void>;
  /** `fast` cuts connections and ends in order, `immediate` leaves all to be recovered. */
  stop(mode: "fast" | "immediate"): void;
  /** Of the server and of those that it has started. */
  processes(): number[];
  /** The signal reaches all of its processes at once. */
  signal(name: "SIGKILL" | "SIGSTOP" | "SIGCONT"): void;
}

/** @returns the folder of `initdb` and `postgres`, the newest one; `null` when there is none */
export function findPrograms(): string | null {
  // Of another version: see scripts/postgres-versions.ts.
  const given = Bun.env["TEST_POSTGRES_PROGRAMS"];
  if (given !== undefined && given !== "") return given;
  const found = Bun.which("initdb");
  // A link in PATH may have no link to the server beside it.
  if (found !== null) return dirname(realpathSync(found));
  const folders = [...new Bun.Glob("/usr/lib/postgresql/*/bin/initdb").scanSync("/")];
  const version = (path: string) => Number(path.split("/")[4]);
  const newest = folders.sort((left, right) => version(right) - version(left))[0];
  return newest === undefined ? null : dirname(newest);
}

export function freePort(): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const server = createServer();
  server.on("error", reject);
  server.listen(0, "127.0.0.1", () => {
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    server.close(() => resolve(port));
  });
  return promise;
}

/** Of nobody, by `id`. */
function idOf(option: "-u" | "-g"): number {
  return Number(Bun.spawnSync(["id", option, NOBODY]).stdout.toString());
}

/** Words of a command that runs as somebody who is not root. Not by runuser, which stops with its child. */
export function asNobody(args: readonly string[]): string[] {
  if (process.getuid?.() !== 0) return [...args];
  return ["setpriv", `--reuid=${NOBODY}`, `--regid=${idOf("-g")}`, "--clear-groups", ...args];
}

/** A temporary folder for whoever `asNobody` is. */
export function makeFolderOfNobody(): string {
  const directory = mkdtempSync(join(tmpdir(), "user-api-postgres-"));
  if (process.getuid?.() === 0) chownSync(directory, idOf("-u"), idOf("-g"));
  return directory;
}

function runProgram(...args: string[]): void {
  const { exitCode, stdout, stderr } = Bun.spawnSync(asNobody(args), { cwd: tmpdir() });
  if (exitCode !== 0) throw new Error(`Cannot run ${args[0]}: ${stdout}${stderr}`);
}

/** Ends the server when its input is closed, as it is with this process, however that ends. */
const watch = `
  read -r line
  pid=$(head -n 1 "$1/data/postmaster.pid") && kill -QUIT $pid && kill -CONT $pid
  while kill -0 $pid; do sleep 0.1; done
  rm -rf "$1"
`;

/** The process and its children. */
function processesOf(pid: number): number[] {
  const children = readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === pid;
    } catch {
      // It has ended since.
      return false;
    }
  });
  return [pid, ...children.map(Number)];
}

/** @param primary a running server to copy, so that the data are those of a standby; `null` for new data */
function createData(programs: string, data: string, primary: Instance | null): void {
  const of_primary = ["--checkpoint", "fast", "--write-recovery-conf"];
  const of_new = [
    "--username",
    "postgres",
    "--auth",
    "trust",
    "--encoding",
    "UTF8",
    "--locale",
    "C",
  ];
  const [program, args] =
    primary === null
      ? ["initdb", of_new]
      : ["pg_basebackup", ["--dbname", primary.url, ...of_primary]];
  runProgram(join(programs, program), "--pgdata", data, "--no-sync", ...args);
}

export async function answers(url: string): Promise<boolean> {
  const sql = new SQL(url, { max: 1 });
  try {
    await sql.unsafe("select 1");
    return true;
  } catch {
    return false;
  } finally {
    await sql.close();
  }
}

/** @param settings beside those that any test needs */
export async function makeInstance(
  programs: string,
  settings: Readonly<Record<string, string>>,
  primary: Instance | null = null,
): Promise<Instance> {
  const directory = makeFolderOfNobody();
  const data = join(directory, "data");
  const port = await freePort();
  createData(programs, data, primary);
  const all = {
    listen_addresses: "127.0.0.1",
    port,
    unix_socket_directories: "",
    max_connections: 300,
    ...settings,
  };
  const flags = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const watching = asNobody(["sh", "-c", watch, "sh", directory]);
  const watcher = Bun.spawn(watching, {
    cwd: tmpdir(),
    stdin: "pipe",
    stdout: "ignore",
    stderr: "ignore",
  });
  watcher.unref();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const pid = () => Number.parseInt(readFileSync(join(data, "postmaster.pid"), "utf8"), 10);
  return {
    url,
    programs,
    data,
    async start() {
      const args = asNobody([join(programs, "postgres"), "-D", data, ...flags]);
      const run = () =>
        Bun.spawn(args, { cwd: tmpdir(), stdin: "ignore", stdout: "ignore", stderr: "ignore" });
      const deadline_ms = performance.now() + TIMEOUT_MS;
      let server = run();
      server.unref();
      while (!(await answers(url))) {
        if (performance.now() > deadline_ms)
          throw new Error(`PostgreSQL does not start in ${data}`);
        // One that was killed may have left processes that are still ending.
        if (server.exitCode !== null) {
          server = run();
          server.unref();
        }
        await Bun.sleep(10);
      }
    },
    stop: (mode) => runProgram(join(programs, "pg_ctl"), "-D", data, "-w", "-m", mode, "stop"),
    processes: () => processesOf(pid()),
    signal(name) {
      for (const each of processesOf(pid())) {
        try {
          process.kill(each, name);
        } catch {
          // A child ends with its parent, too.
        }
      }
    },
    async [Symbol.asyncDispose]() {
      await watcher.stdin.end();
      await watcher.exited;
    },
  };
}
