/**
 * A PostgreSQL server for the tests: that of TEST_POSTGRES_URL, or one made for them of what is installed,
 * on a free port of the loopback, in a temporary folder. It ends with the process, however that ends.
 */
import { chownSync, mkdtempSync, realpathSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { SQL } from "bun";

/** The server refuses to run as root; nobody is everywhere. */
const NOBODY = "nobody";

export interface Cluster {
  /** @returns the URL of a new database, a copy of `template` if given, which nobody may have open */
  createDatabase(template?: string): Promise<string>;
  /** Whoever has it open or not. */
  dropDatabase(url: string): Promise<void>;
  /** Runs statements in the database of the URL. */
  run<Row>(url: string, statement: string): Promise<Row[]>;
  /** URL of its first database. */
  readonly url: string;
  /** Folder of its programs and of its data; `null` for a server that was started elsewhere. */
  readonly own: { readonly programs: string; readonly data: string } | null;
}

/** @returns the folder of `initdb` and `postgres`, the newest one; `null` when there is none */
function findPrograms(): string | null {
  const found = Bun.which("initdb");
  // A link in PATH may have no link to the server beside it.
  if (found !== null) return dirname(realpathSync(found));
  const folders = [...new Bun.Glob("/usr/lib/postgresql/*/bin/initdb").scanSync("/")];
  const version = (path: string) => Number(path.split("/")[4]);
  const newest = folders.sort((left, right) => version(right) - version(left))[0];
  return newest === undefined ? null : dirname(newest);
}

function freePort(): Promise<number> {
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

/** Words of a command that runs as somebody who is not root. */
function asNobody(words: readonly string[]): string[] {
  return process.getuid?.() === 0 ? ["runuser", "-u", NOBODY, "--", ...words] : [...words];
}

function runProgram(...words: string[]): void {
  const { exitCode, stdout, stderr } = Bun.spawnSync(asNobody(words), { cwd: tmpdir() });
  if (exitCode !== 0) throw new Error(`Cannot run ${words[0]}: ${stdout}${stderr}`);
}

/** Ends the server when its input is closed, as it is with this process, however that ends. */
const watch = `
  folder=$1
  shift
  "$@" &
  read -r line
  kill -QUIT $!
  wait
  rm -rf "$folder"
`;

/** @returns the URL of its first database, and where it is */
async function startServer(programs: string): Promise<{ url: string; data: string }> {
  const folder = mkdtempSync(join(tmpdir(), "user-api-postgres-"));
  if (process.getuid?.() === 0) {
    const id = Number(Bun.spawnSync(["id", "-u", NOBODY]).stdout.toString());
    chownSync(folder, id, id);
  }
  const data = join(folder, "data");
  const port = await freePort();
  runProgram(
    join(programs, "initdb"),
    ...["--pgdata", data, "--username", "postgres", "--auth", "trust"],
    ...["--encoding", "UTF8", "--locale", "C", "--no-sync"],
  );
  const settings = {
    listen_addresses: "127.0.0.1",
    port,
    unix_socket_directories: "",
    max_connections: 300,
    // Nothing here has to outlive the machine.
    fsync: "off",
    autovacuum: "off",
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const server = Bun.spawn(
    asNobody(["sh", "-c", watch, "sh", folder, join(programs, "postgres"), "-D", data, ...flags]),
    { cwd: tmpdir(), stdin: "pipe", stdout: "ignore", stderr: "ignore" },
  );
  server.unref();
  return { url: `postgres://postgres@127.0.0.1:${port}/postgres`, data };
}

async function untilAnswers(url: string): Promise<void> {
  const deadline_ms = performance.now() + 20_000;
  for (;;) {
    const sql = new SQL(url, { max: 1 });
    try {
      await sql.unsafe("select 1");
      return;
    } catch (error) {
      if (performance.now() > deadline_ms) throw error;
      await Bun.sleep(20);
    } finally {
      await sql.close();
    }
  }
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  // A test has its database to itself, and most ask one thing after the other.
  if (!changed.searchParams.has("max")) changed.searchParams.set("max", "5");
  return changed.href;
}

/** @param kept whether all goes with the server, and nothing needs to be waited for */
function clusterAt(url: string, own: Cluster["own"], kept: boolean): Cluster {
  const sql = new SQL(url, { max: 2 });
  return {
    url,
    own,
    async createDatabase(template) {
      const name = `user_api_test_${crypto.randomUUID().replaceAll("-", "")}`;
      const from = template === undefined ? "template0" : new URL(template).pathname.slice(1);
      await sql.unsafe(`create database ${name} template ${from}`);
      return withDatabase(url, name);
    },
    async dropDatabase(database) {
      const name = new URL(database).pathname.slice(1);
      const dropping = sql.unsafe(`drop database ${name} with (force)`);
      // The server waits 0.1 s for connections that are just being closed.
      if (kept) dropping.catch(() => {});
      else await dropping;
    },
    async run(database, statement) {
      const other = new SQL(database, { max: 1 });
      try {
        return await other.unsafe(statement);
      } finally {
        await other.close();
      }
    },
  };
}

async function openCluster(): Promise<Cluster | null> {
  const given = Bun.env["TEST_POSTGRES_URL"];
  if (given !== undefined && given !== "")
    return clusterAt(given, null, Bun.env["TEST_POSTGRES_KEEP"] === "true");
  const programs = findPrograms();
  if (programs === null) return null;
  const { url, data } = await startServer(programs);
  await untilAnswers(url);
  return clusterAt(url, { programs, data }, true);
}

const missing = "PostgreSQL is not tested: there is no initdb here, nor TEST_POSTGRES_URL";

const shared: { cluster?: Promise<Cluster | null> } = {};

/**
 * The one server of all test files. `null` where there is none, which is told in a line, or is a failure, on
 * CI and where it is required.
 */
export function findCluster(): Promise<Cluster | null> {
  shared.cluster ??= openCluster().then((cluster) => {
    if (cluster !== null) return cluster;
    const required = Bun.env["CI"] === "true" || Bun.env["TEST_POSTGRES_REQUIRED"] === "true";
    if (required) throw new Error(missing);
    process.stderr.write(`${missing}\n`);
    return null;
  });
  return shared.cluster;
}
