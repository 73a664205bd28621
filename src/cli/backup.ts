import { type Flags, readConfig } from "../config.ts";
import type { BackupSummary, Store } from "../store.ts";
import type { Io } from "./context.ts";
import { createProgress } from "./progress.ts";

/** The form in which a person reads it, e.g. "12 users, 34 orders and 2 tokens (1.5 MB)". */
function describeBackup({ users, orders, tokens, bytes }: BackupSummary): string {
  const [u, o, t] = [users, orders, tokens].map((count) => count.toLocaleString("en"));
  return `${u} users, ${o} orders and ${t} tokens (${(bytes / 1e6).toFixed(1)} MB)`;
}

/** Copies with a progress bar, until a signal ends it. */
async function backUpWithProgress(store: Store, path: string, io: Io): Promise<BackupSummary> {
  using progress = createProgress(io, 100);
  const abort = new AbortController();
  void io.untilStopped().then(() => abort.abort());
  const onProgress = (part: number) => progress.update(Math.floor(part * 100));
  return await store.backUp(path, onProgress, abort.signal);
}

/**
 * Copies the database into a new file, beside a running server too.
 * @throws {AppError} operator
 */
export async function backUpStore(path: string, flags: Flags, io: Io): Promise<void> {
  const config = readConfig(io.environment, flags);
  const options = { ...config, exclusive: false, create: false, now: io.now };
  const store = await io.openStore(options);
  try {
    const contents = await backUpWithProgress(store, path, io);
    io.stdout(`${path} is a checked copy of ${describeBackup(contents)}\n`);
  } finally {
    await store.close();
  }
}

/**
 * Puts a backup in the place of the database, which it keeps.
 * @throws {AppError} operator
 */
export async function restoreBackup(from: string, flags: Flags, io: Io): Promise<void> {
  const { database_url } = readConfig(io.environment, flags);
  const { previous_path, ...contents } = await io.restoreStore({ from, database_url, now: io.now });
  io.stdout(`${database_url} is restored: ${describeBackup(contents)}\n`);
  if (previous_path !== null) io.stdout(`What it was before is ${previous_path}\n`);
}
