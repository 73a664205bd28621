import { type Flags, readConfig } from "../config.ts";
import type { Contents } from "../store.ts";
import type { Io } from "./io.ts";
import { createProgress } from "./progress.ts";

/** The form in which a person reads it, e.g. "12 users, 34 orders and 2 tokens (1.5 MB)". */
function describe({ users, orders, tokens, bytes }: Contents): string {
  const [u, o, t] = [users, orders, tokens].map((count) => count.toLocaleString("en"));
  return `${u} users, ${o} orders and ${t} tokens (${(bytes / 1e6).toFixed(1)} MB)`;
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
    using progress = createProgress(io, 100);
    const contents = await store.backUp(path, (part) => progress.update(Math.floor(part * 100)));
    io.stdout(`${path} is a checked copy of ${describe(contents)}\n`);
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
  const { kept, ...contents } = await io.restoreStore({ from, database_url, now: io.now });
  io.stdout(`${database_url} is restored: ${describe(contents)}\n`);
  if (kept !== null) io.stdout(`What it was before is ${kept}\n`);
}
