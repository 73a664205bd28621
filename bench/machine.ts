/** Where it was measured, and with which versions. */
import { Database } from "bun:sqlite";
import { cpus, release, totalmem } from "node:os";
import { readBaseline } from "./baseline.ts";
import manifest from "./package.json" with { type: "json" };
import { describePocketBase } from "./pocketbase.ts";
import { describePostgres } from "./postgres.ts";
import { output } from "./process.ts";
import { binary, dataDirectory } from "./seed.ts";
import { node } from "./servers.ts";

export function describeMachine(): Record<string, string> {
  const models = cpus();
  const [, system = "Linux"] = /PRETTY_NAME="(.*)"/.exec(output("cat", "/etc/os-release")) ?? [];
  return {
    processor: `${models.length} × ${models[0]?.model.trim()}`,
    memory: `${Math.round(totalmem() / 2 ** 30)} GB`,
    system: `${system}, kernel ${release()}`,
    "file system": output("findmnt", "-no", "FSTYPE", "-T", dataDirectory),
  };
}

export function describeVersions(): Record<string, string> {
  const [sqlite] = new Database(":memory:").query("select sqlite_version()").values();
  const { dependencies } = manifest;
  // `wrk --version` exits with 1.
  const printed = Bun.spawnSync(["wrk", "--version"]).stdout.toString();
  return {
    "user-api": `${output(binary, "version")}, commit ${output("git", "rev-parse", "--short", "HEAD")}`,
    "the version before": readBaseline(),
    PostgreSQL: describePostgres() ?? "not installed",
    Bun: `${Bun.version} with SQLite ${sqlite?.[0]}`,
    Hono: `${dependencies.hono}, postgres.js ${dependencies.postgres}`,
    Node: `${output(node, "--version").slice(1)} with better-sqlite3 ${dependencies["better-sqlite3"]}`,
    Fastify: `${dependencies.fastify}, pg ${dependencies.pg}`,
    PocketBase: describePocketBase() ?? "not installed",
    wrk: /wrk (?:debian\/)?(\S+)/.exec(printed)?.[1] ?? "",
  };
}
