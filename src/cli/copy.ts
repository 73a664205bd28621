import { type Flags, readConfig, readDatabaseUrl, redactPassword } from "../config.ts";
import { copyRows, type RowCounts } from "../copy.ts";
import type { PostgresLayout, Store } from "../store.ts";
import type { Io } from "./context.ts";
import { createProgress } from "./progress.ts";

/** A progress bar is drawn in so many steps. */
const PROGRESS_STEPS = 1000;

export interface CopyOptions {
  /** A path (SQLite), or a URL (PostgreSQL). */
  readonly to: string;
  /** How the tables are to lie there; `null` for as POSTGRES_LAYOUT says. */
  readonly layout: PostgresLayout | null;
}

/** The form in which a person reads it. */
function describeCounts({
  users,
  orders,
  tokens,
  idempotency_keys,
  imported_orders,
}: RowCounts): string {
  const counts = { users, orders, tokens, "idempotency keys": idempotency_keys };
  const parts = Object.entries({ ...counts, "import keys": imported_orders }).map(
    ([what, count]) => `${count.toLocaleString("en")} ${what}`,
  );
  return `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** Copies with a progress bar, until a signal ends it. */
async function copyWithProgress(
  store: Store,
  target_options: Parameters<Io["withCopyTarget"]>[0],
  io: Io,
): Promise<RowCounts> {
  using progress = createProgress(io, PROGRESS_STEPS);
  const abort = new AbortController();
  void io.untilStopped().then(() => abort.abort());
  const onProgress = (rows: number, total: number) =>
    progress.update(total === 0 ? PROGRESS_STEPS : Math.floor((PROGRESS_STEPS * rows) / total));
  return await store.withCopySource((source) =>
    io.withCopyTarget(target_options, (copy_target) =>
      copyRows(source, copy_target, onProgress, abort.signal),
    ),
  );
}

/**
 * Copies the whole database into an empty one, of the same kind or the other.
 * @throws {AppError} operator
 */
export async function copyStore({ to, layout }: CopyOptions, flags: Flags, io: Io): Promise<void> {
  const config = readConfig(io.environment, flags);
  const postgres_layout = layout ?? config.postgres_layout;
  const target_options = { database_url: readDatabaseUrl("--to", to), postgres_layout };
  const store = await io.openStore({ ...config, exclusive: false, create: false, now: io.now });
  const started_ms = performance.now();
  try {
    const copied = await copyWithProgress(store, target_options, io);
    const seconds = ((performance.now() - started_ms) / 1000).toFixed(1);
    const [source, copied_to] = [config, target_options].map((end) =>
      redactPassword(end.database_url),
    );
    io.stdout(`${copied_to} has all of ${source}: ${describeCounts(copied)}. `);
    io.stdout(`Read back and compared, in ${seconds} s\n`);
  } finally {
    await store.close();
  }
}
