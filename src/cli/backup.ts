import { readConfig } from "../config.ts";
import type { BackupSummary } from "../store.ts";
import { formatCounts } from "./count-text.ts";
import { createProgress } from "./progress.ts";
import { type CommandSystem, stopSignal, withStore } from "./system.ts";

/** @returns e.g. `1 user, 2 orders and 3 tokens to backup.db (1.5 MB, verified)` */
function describeResult({ users, orders, tokens, bytes }: BackupSummary, target: string): string {
  const counts = formatCounts({ user: users, order: orders, token: tokens });
  return `${counts} to ${target} (${(bytes / 1e6).toFixed(1)} MB, verified)`;
}

/**
 * Copies the database to a new file. A server may be running.
 * @throws {AppError} operator
 */
export async function backUpStore(path: string, system: CommandSystem): Promise<void> {
  const contents = await withStore(system, { readOnly: true }, async (store) => {
    using progress = createProgress(system, 1);
    return await store.backUp(path, progress.update, stopSignal(system));
  });
  system.stdout(`Backed up ${describeResult(contents, path)}\n`);
}

/**
 * Replaces the database with a backup and keeps the previous database.
 * @throws {AppError} operator
 */
export async function restoreBackup(from: string, system: CommandSystem): Promise<void> {
  const { databaseUrl } = readConfig(system.environment, system.flags);
  const { restore } = system.backendOf(databaseUrl);
  const { previousPath, ...contents } = await restore({ from, databaseUrl, now: system.now });
  system.stdout(`Restored ${describeResult(contents, databaseUrl)}\n`);
  if (previousPath !== null) system.stdout(`The previous database was kept as ${previousPath}\n`);
}
