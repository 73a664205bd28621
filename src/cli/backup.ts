import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { formatCounts } from "../base/count-text.ts";
import { fail, fileProblem, messageOf, systemCode } from "../base/error.ts";
import { isTimeInName, timeInName } from "../base/time-in-name.ts";
import { invalidValue } from "../domain/config.ts";
import type { BackupSummary } from "../domain/store.ts";
import { type CommandSystem, type JsonOption, printResult, stopSignal } from "./system/system.ts";

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

export function describeResult(made: Omit<BackupSummary, "warnings">, target: string): string {
  const { users, orders, tokens, bytes } = made;
  const counts = formatCounts({ user: users, order: orders, token: tokens });
  return `${counts} to ${target} (${megabytes(bytes)}, verified)`;
}

export function describeWarnings(warnings: readonly string[]): string {
  return `Needs attention: ${warnings.join("; ")}`;
}

async function backUpTo(path: string, system: CommandSystem) {
  const { databaseUrl } = system.config;
  const { backUp } = system.backendOf(databaseUrl);
  const made = await backUp({ databaseUrl, path, signal: stopSignal(system) });
  const result =
    "schema_version" in made
      ? `a database whose schema has version ${made.schema_version} to ${path} (${megabytes(made.bytes)}, its rows are not verified)`
      : describeResult(made, path);
  const { warnings } = made;
  if (warnings.length > 0) system.stderr(`${describeWarnings(warnings)}\n`);
  return { value: { path, ...made }, text: `Backed up ${result}\n` };
}

/** @param keep number of backups that remain, from 1, in addition to those with a later time */
function deleteOldest(directory: string, name: string, newest: string, keep: number): void {
  const isBackup = (file: string) =>
    file.startsWith(`${name}-`) &&
    file.endsWith(".db") &&
    isTimeInName(file.slice(name.length + 1, -3));
  // Those that the clock has dated later than now do not count, or they would take the places of later backups.
  const others = readdirSync(directory).filter((file) => isBackup(file) && file < newest);
  for (const file of others.sort().slice(0, Math.max(0, others.length + 1 - keep))) {
    try {
      // Another run may have deleted it.
      rmSync(join(directory, file), { force: true });
    } catch (error) {
      fail("operator", `Cannot delete the old backup ${file}: ${messageOf(error)}`);
    }
  }
}

/** Creates a directory unless something has its name, but not its parent: that may be a disk that is not mounted. */
function makeDirectory(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (systemCode(error) === "EEXIST") return;
    fail("operator", `Cannot create ${path}: ${fileProblem(error) ?? messageOf(error)}`);
  }
}

/** A server may be running. Either a file or a directory is given. */
export async function backUpStore(
  system: CommandSystem,
  file: string | undefined,
  { directory, keep, json }: JsonOption & { readonly directory?: string; readonly keep?: string },
): Promise<void> {
  if (keep !== undefined && !/^[1-9]\d{0,5}$/.test(keep))
    fail("usage", invalidValue("--keep", keep, "must be an integer from 1 to 999,999"));
  if (keep !== undefined && directory === undefined) fail("usage", "--keep needs --directory");
  if (file !== undefined && file !== "" && directory === undefined) {
    const { value, text } = await backUpTo(file, system);
    return printResult(system, json, value, text);
  }
  if (file !== undefined || directory === undefined || directory === "")
    fail("usage", "Name either a file or a directory");
  const { databaseUrl } = system.config;
  const name = basename(databaseUrl, extname(databaseUrl));
  const newest = `${name}-${timeInName(system.now())}.db`;
  makeDirectory(directory);
  const { value, text } = await backUpTo(join(directory, newest), system);
  try {
    printResult(system, json, value, text);
  } finally {
    // Also if stdout cannot be written, e.g. because a log is full.
    if (keep !== undefined) deleteOldest(directory, name, newest, Number(keep));
  }
}
