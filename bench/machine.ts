/** Where it was measured, and with which versions. */
import { Database } from "bun:sqlite";
import { cpus, release, totalmem } from "node:os";
import manifest from "./package.json" with { type: "json" };
import { describePocketBase } from "./pocketbase.ts";
import { describePostgres } from "./postgres.ts";
import { output } from "./process.ts";
import { binary, data_directory } from "./seed.ts";
import { new_node, old_node } from "./servers.ts";

export function describeMachine(): Record<string, string> {
  const models = cpus();
  const [, system = "Linux"] = /PRETTY_NAME="(.*)"/.exec(output("cat", "/etc/os-release")) ?? [];
  return {
    processor: `${models.length} × ${models[0]?.model.trim()}`,
    memory: `${Math.round(totalmem() / 2 ** 30)} GB`,
    system: `${system}, kernel ${release()}`,
    "file system": output("findmnt", "-no", "FSTYPE", "-T", data_directory),
  };
}

export function describeVersions(): Record<string, string> {
  const [sqlite] = new Database(":memory:").query("select sqlite_version()").values();
  const { dependencies } = manifest;
  const node = (command: string, addon: string) =>
    `${output(command, "--version").slice(1)} with better-sqlite3 ${addon}`;
  // `wrk --version` exits with 1.
  const printed = Bun.spawnSync(["wrk", "--version"]).stdout.toString();
  return {
    "user-api": `${output(binary, "version")}, commit ${output("git", "rev-parse", "--short", "HEAD")}`,
    PostgreSQL: describePostgres() ?? "not installed",
    Bun: `${Bun.version} with SQLite ${sqlite?.[0]}`,
    Hono: `${dependencies.hono}, postgres.js ${dependencies.postgres}`,
    Node: node(old_node, dependencies["better-sqlite3"]),
    "newer Node": node(new_node, dependencies["better-sqlite3-13"].replace(/.*@/, "")),
    Fastify: `${dependencies.fastify}, pg ${dependencies.pg}`,
    Express: dependencies.express,
    PocketBase: describePocketBase() ?? "not installed",
    wrk: /wrk (?:debian\/)?(\S+)/.exec(printed)?.[1] ?? "",
  };
}
