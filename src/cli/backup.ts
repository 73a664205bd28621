import { readConfig } from "../config.ts";
import type { BackupSummary, Store } from "../store.ts";
import { formatCount, joinWords } from "./count-text.ts";
import { createProgress } from "./progress.ts";
import { type CommandSystem, stopSignal, withStore } from "./system.ts";

function describeContents({ users, orders, tokens }: BackupSummary): string {
  return joinWords([
    formatCount(users, "user"),
    formatCount(orders, "order"),
    formatCount(tokens, "token"),
  ]);
}

/** @returns the size as in `1.5 MB` */
function formatSize(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Shows a progress bar; a signal cancels the backup. */
async function backUpWithProgress(
  store: Store,
  path: string,
  system: CommandSystem,
): Promise<BackupSummary> {
  using progress = createProgress(system, 100);
  const onProgress = (fraction: number) => progress.update(Math.floor(fraction * 100));
  return await store.backUp(path, onProgress, stopSignal(system));
}

/**
 * Copies the database to a new file. A server may be running.
 * @throws {AppError} operator
 */
export async function backUpStore(path: string, system: CommandSystem): Promise<void> {
  const contents = await withStore(system, { create: false }, (store) =>
    backUpWithProgress(store, path, system),
  );
  const size = formatSize(contents.bytes);
  system.stdout(`Backed up ${describeContents(contents)} to ${path} (${size}, verified)\n`);
}

/**
 * Replaces the database with a backup and keeps the previous database.
 * @throws {AppError} operator
 */
export async function restoreBackup(from: string, system: CommandSystem): Promise<void> {
  const { database_url } = readConfig(system.environment, system.flags);
  const { restore } = system.backendOf(database_url);
  const { previous_path, ...contents } = await restore({ from, database_url, now: system.now });
  const size = formatSize(contents.bytes);
  system.stdout(`Restored ${describeContents(contents)} to ${database_url} (${size}, verified)\n`);
  if (previous_path !== null) system.stdout(`The previous database was kept as ${previous_path}\n`);
}
