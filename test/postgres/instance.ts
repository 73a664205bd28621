/**
 * A temporary PostgreSQL server, from the installed programs: on a free loopback port, in a temporary directory,
 * not as root. It stops when this process ends, however it ends.
 */
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { SQL } from "bun";
import { startWatcher } from "../support/directory.ts";

/** PostgreSQL does not run as root. Every system has this user. */
const NOBODY = "nobody";
const TIMEOUT_MS = 30_000;

export type Instance = ReturnType<typeof makeInstance>;

/** @returns the directory of the newest `initdb` and `postgres`; `null` if they are not installed */
export function findPrograms(): string | null {
  // Another version can be given: see scripts/postgres-versions.ts.
  const given = Bun.env["TEST_POSTGRES_PROGRAMS"];
  if (given !== undefined && given !== "") return given;
  const found = Bun.which("initdb");
  // The directory in PATH may have a link to `initdb` but none to `postgres`.
  if (found !== null) return dirname(fs.realpathSync(found));
  const paths = [...new Bun.Glob("/usr/lib/postgresql/*/bin/initdb").scanSync("/")];
  const version = (path: string) => Number(path.split("/")[4]);
  const newest = paths.sort((left, right) => version(right) - version(left))[0];
  return newest === undefined ? null : dirname(newest);
}

export function freePort(): number {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { port } = listener;
  listener.stop(true);
  return port;
}

function idOf(option: "-u" | "-g"): number {
  return Number(Bun.spawnSync(["id", option, NOBODY]).stdout.toString());
}

/** Command line that runs `args` as a user other than root. Not runuser: a SIGSTOP of its child stops it too. */
export function asNobody(args: readonly string[]): string[] {
  if (process.getuid?.() !== 0) return [...args];
  return ["setpriv", `--reuid=${NOBODY}`, `--regid=${idOf("-g")}`, "--clear-groups", ...args];
}

export function makeDirectoryOfNobody(): string {
  const directory = fs.mkdtempSync(join(tmpdir(), "user-api-postgres-"));
  if (process.getuid?.() === 0) fs.chownSync(directory, idOf("-u"), idOf("-g"));
  return directory;
}

function runProgram(...args: string[]): void {
  const { exitCode, stdout, stderr } = Bun.spawnSync(asNobody(args), { cwd: tmpdir() });
  if (exitCode !== 0) throw new Error(`Cannot run ${args[0]}: ${stdout}${stderr}`);
}

const stopAndRemove = `
  read -r line
  pid=$(head -n 1 "$1/data/postmaster.pid") && kill -QUIT $pid && kill -CONT $pid
  while kill -0 $pid; do sleep 0.1; done
  rm -rf "$1"
`;

/** @returns the ids of the server with these data and of its child processes */
export function processesIn(data: string): [number, ...number[]] {
  const pid = Number.parseInt(fs.readFileSync(join(data, "postmaster.pid"), "utf8"), 10);
  const children = fs.readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const stat = fs.readFileSync(`/proc/${name}/stat`, "utf8");
      return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === pid;
    } catch {
      // The process has ended.
      return false;
    }
  });
  return [pid, ...children.map(Number)];
}

/** Stops the server with these data, which starts no more processes then. */
function suspend(data: string): void {
  const [pid] = processesIn(data);
  process.kill(pid, "SIGSTOP");
  while (!/\) [TZ] /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"))) Bun.sleepSync(1);
}

type Signal = "SIGKILL" | "SIGSTOP" | "SIGCONT";

export function signalServer(data: string, name: Signal): void {
  // A process that is missed can keep the memory of a killed server, and another one does not start.
  if (name !== "SIGCONT") suspend(data);
  for (const pid of processesIn(data)) {
    try {
      process.kill(pid, name);
    } catch {
      // The process has ended: children exit with their parent.
    }
  }
}

export function initialize(programs: string, data: string): void {
  const names = ["--username", "postgres", "--auth", "trust"];
  const text = ["--encoding", "UTF8", "--locale", "C"];
  runProgram(join(programs, "initdb"), "--pgdata", data, "--no-sync", ...names, ...text);
}

/** @param primaryUrl of a running server to copy, so that the data are those of a standby; `null` for new data */
function createData(programs: string, data: string, primaryUrl: string | null): void {
  // A copy takes less time than initdb: see scripts/postgres-data.ts.
  const made = Bun.env["TEST_POSTGRES_DATA"] ?? "";
  if (primaryUrl !== null) {
    const options = ["--checkpoint", "fast", "--write-recovery-conf", "--no-sync"];
    const copy = join(programs, "pg_basebackup");
    runProgram(copy, "--pgdata", data, "--dbname", primaryUrl, ...options);
  } else if (fs.existsSync(made)) {
    fs.cpSync(made, data, { recursive: true });
    if (process.getuid?.() === 0) Bun.spawnSync(["chown", "-R", NOBODY, data]);
  } else {
    initialize(programs, data);
  }
}

/** Runs statements one after the other on a separate connection. @returns the rows of the last one */
export async function runOn<Row>(url: string | URL, ...statements: string[]): Promise<Row[]> {
  const sql = new SQL(url, { max: 1 });
  try {
    let rows: Row[] = [];
    for (const statement of statements) rows = await sql.unsafe(statement);
    return rows;
  } finally {
    await sql.close();
  }
}

/** Runs a statement in a transaction that stays open until it is committed or disposed of. */
export async function holdOn(url: string | URL, statement: string) {
  const sql = new SQL(url, { max: 1 });
  await sql.unsafe(`begin; ${statement}`);
  return {
    async commit() {
      await sql.unsafe("commit");
      await sql.close();
    },
    [Symbol.asyncDispose]: () => sql.close({ timeout: 0 }),
  };
}

/** @returns the name of the database in a URL */
export function databaseOf(url: string | URL): string {
  return new URL(url).pathname.slice(1);
}

export function isResponding(url: string): Promise<boolean> {
  return runOn(url, "select 1").then(
    () => true,
    () => false,
  );
}

/**
 * Disposing of it stops the server and deletes its data.
 * @param settings additional server settings
 * @param primaryUrl of a running server, of which this one becomes a standby
 */
export function makeInstance(
  programs: string,
  settings: Readonly<Record<string, string>>,
  primaryUrl: string | null = null,
) {
  const directory = makeDirectoryOfNobody();
  const data = join(directory, "data");
  createData(programs, data, primaryUrl);
  const port = freePort();
  const all = {
    listen_addresses: "127.0.0.1",
    port,
    unix_socket_directories: "",
    max_connections: 300,
    ...(primaryUrl !== null && { primary_conninfo: `${primaryUrl}?application_name=standby` }),
    ...settings,
  };
  const flags = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const watcher = startWatcher(stopAndRemove, directory);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  return {
    url,
    data,
    async start(): Promise<void> {
      const args = asNobody([join(programs, "postgres"), "-D", data, ...flags]);
      const run = () => {
        const server = Bun.spawn(args, { cwd: tmpdir(), stdio: ["ignore", "ignore", "ignore"] });
        server.unref();
        return server;
      };
      const deadlineMs = performance.now() + TIMEOUT_MS;
      let server = run();
      // Another process may have taken the port.
      while (!(await isResponding(url)) || server.exitCode !== null) {
        if (performance.now() > deadlineMs) throw new Error(`PostgreSQL does not start in ${data}`);
        // A killed server may have left child processes that are still exiting.
        if (server.exitCode !== null) server = run();
        await Bun.sleep(10);
      }
    },
    /** @returns the URL of a new database */
    async createDatabase(): Promise<string> {
      const name = `test_${crypto.randomUUID().replaceAll("-", "")}`;
      await runOn(url, `create database ${name}`);
      return url.replace(/postgres$/, name);
    },
    /** `fast` closes connections and shuts down cleanly; `immediate` needs crash recovery at the next start. */
    stop: (mode: "fast" | "immediate") =>
      runProgram(join(programs, "pg_ctl"), "-D", data, "-w", "-m", mode, "stop"),
    signal: (name: Signal) => signalServer(data, name),
    [Symbol.asyncDispose]: () => watcher.end(),
  };
}

export async function startInstance(...parts: Parameters<typeof makeInstance>): Promise<Instance> {
  const instance = makeInstance(...parts);
  await instance.start();
  return instance;
}
