/**
 * PgBouncer in transaction mode, the most common setup: a client has a connection for one transaction, and here another
 * one for the next, so that what a session keeps is lost.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { asNobody, freePort, isResponding, makeDirectoryOfNobody } from "../postgres/instance.ts";
import { startWatcher } from "../support/directory.ts";

/** A newer one than that of Debian 12, or the installed one. Debian's directory for it is only in root's PATH. */
const program =
  Bun.env["TEST_PGBOUNCER"] ?? Bun.which("pgbouncer") ?? Bun.which("/usr/sbin/pgbouncer");

export function hasPooler(): boolean {
  if (program === null && Bun.env["TEST_POSTGRES_REQUIRED"] === "true")
    throw new Error("there is no PgBouncer: install pgbouncer");
  return program !== null;
}

/** @returns whether it can keep prepared statements: from version 1.21 on */
export function keepsPreparedStatements(): boolean {
  if (program === null) return false;
  const { stdout } = Bun.spawnSync([program, "--version"]);
  return Number(/PgBouncer 1\.(\d+)/.exec(stdout.toString())?.[1]) >= 21;
}

const POOL_SIZE = 6;

const runAndRemove = `
  directory=$1
  shift
  "$@" &
  read -r line
  kill $!
  wait
  rm -rf "$directory"
`;

/**
 * @param preparing settings with which it keeps prepared statements and accepts connection settings; by default it does
 * neither
 */
export async function startPooler(url: string, preparing?: string) {
  const directory = makeDirectoryOfNobody();
  const port = freePort();
  const server = new URL(url);
  const users = join(directory, "users.txt");
  writeFileSync(users, `"${server.username}" ""\n`);
  const settings = join(directory, "pgbouncer.ini");
  const text = `
[databases]
* = host=${server.hostname} port=${server.port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
server_round_robin = 1
default_pool_size = ${POOL_SIZE}
max_client_conn = 1000
${preparing ?? ""}
`;
  writeFileSync(settings, text);
  const command = asNobody([program ?? "", settings]);
  const watcher = startWatcher(runAndRemove, directory, ...command);
  const search = preparing === undefined ? "prepare=false" : "";
  const through = (database: string) =>
    Object.assign(new URL(database), { host: `127.0.0.1:${port}`, search }).href;
  while (!(await isResponding(through(url)))) await Bun.sleep(10);
  return { through, [Symbol.asyncDispose]: () => watcher.end() };
}
