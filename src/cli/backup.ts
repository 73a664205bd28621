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

function quoteNames(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(", ");
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
 * Replaces the database with a backup, in which the tokens that the previous database has revoked stay revoked. Keeps
 * the previous database.
 * @throws {AppError} operator
 */
export async function restoreBackup(from: string, system: CommandSystem): Promise<void> {
  const { databaseUrl } = readConfig(system.environment, system.flags);
  const { restore } = system.backendOf(databaseUrl);
  const { previousPath, revokedTokens, validTokens, ...contents } = await restore({
    from,
    databaseUrl,
    now: system.now,
  });
  system.stdout(`Restored ${describeResult(contents, databaseUrl)}\n`);
  if (previousPath !== null) system.stdout(`The previous database was kept as ${previousPath}\n`);
  if (revokedTokens === null && validTokens.length > 0) {
    system.stdout(
      "No previous database could be read: tokens revoked since the backup are valid again\n",
    );
    system.stdout(`Valid tokens: ${quoteNames(validTokens)}\n`);
  }
  if (revokedTokens !== null && revokedTokens.length > 0) {
    system.stdout(`Revoked as in the previous database: ${quoteNames(revokedTokens)}\n`);
  }
}
