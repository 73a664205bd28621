/** Where it was measured, and with what. */
import { Database } from "bun:sqlite";
import { cpus, release, totalmem } from "node:os";
import { new_node, old_node } from "./contenders.ts";
import manifest from "./package.json" with { type: "json" };
import { describePostgres } from "./postgres.ts";
import { binary, data_folder } from "./seed.ts";

function output(...command: string[]): string {
  return Bun.spawnSync(command).stdout.toString().trim();
}

export function describeMachine(): Record<string, string> {
  const models = cpus();
  const [, system = "Linux"] = /PRETTY_NAME="(.*)"/.exec(output("cat", "/etc/os-release")) ?? [];
  return {
    processor: `${models.length} × ${models[0]?.model.trim()}`,
    memory: `${Math.round(totalmem() / 2 ** 30)} GB`,
    system: `${system}, kernel ${release()}`,
    "file system": output("findmnt", "-no", "FSTYPE", "-T", data_folder),
  };
}

export function describeVersions(): Record<string, string> {
  const [sqlite] = new Database(":memory:").query("select sqlite_version()").values();
  const { dependencies } = manifest;
  const node = (command: string, addon: string) =>
    `${output(command, "--version").slice(1)} with better-sqlite3 ${addon}`;
  const [, wrk = ""] = /wrk (?:debian\/)?(\S+)/.exec(output("wrk", "--version")) ?? [];
  return {
    "user-api": `${output(binary, "version")}, commit ${output("git", "rev-parse", "--short", "HEAD")}`,
    PostgreSQL: describePostgres() ?? "none, so that it was not measured",
    Bun: `${Bun.version} with SQLite ${sqlite?.[0]}`,
    Hono: dependencies.hono,
    Node: node(old_node, dependencies["better-sqlite3"]),
    "newer Node": node(new_node, dependencies["better-sqlite3-13"].replace(/.*@/, "")),
    Fastify: dependencies.fastify,
    Express: dependencies.express,
    wrk,
  };
}
