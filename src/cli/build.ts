import { version } from "../../package.json" with { type: "json" };
import { type JsonOption, printResult, type System } from "./system/system.ts";

/** From scripts/build.sh. It is not defined if the program runs from source. */
declare const BUILD_COMMIT: string | undefined;

export const build = {
  version,
  /** The beginning of its hash, with `-dirty` after uncommitted changes; `source` if the program is not compiled. */
  commit: typeof BUILD_COMMIT === "undefined" ? "source" : BUILD_COMMIT,
};

export function versionText({ schemaVersions }: System): string {
  const schemas = Object.entries(schemaVersions).map(([name, version]) => `${name} ${version}`);
  return `${build.version} (commit ${build.commit}; schemas: ${schemas.join(", ")})`;
}

export function printVersion(system: System, { json }: JsonOption): void {
  const { SQLite: sqlite, PostgreSQL: postgresql } = system.schemaVersions;
  const value = { ...build, schemas: { sqlite, postgresql } };
  printResult(system, json, value, `${versionText(system)}\n`);
}
