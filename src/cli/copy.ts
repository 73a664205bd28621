import { type Flags, readConfig, readDatabaseUrl, shownDatabase } from "../config.ts";
import { type Copied, copyRows } from "../copy.ts";
import type { PostgresLayout, Store } from "../store.ts";
import type { Io } from "./io.ts";
import { createProgress } from "./progress.ts";

/** A progress bar is drawn in so many steps. */
const STEPS = 1000;

export interface Copy {
  /** A path (SQLite), or a URL (PostgreSQL). */
  readonly to: string;
  /** How the tables are to lie there; `null` for as POSTGRES_LAYOUT says. */
  readonly layout: PostgresLayout | null;
}

/** The form in which a person reads it. */
function describe({ users, orders, tokens, idempotency_keys, imported_orders }: Copied): string {
  const counts = { users, orders, tokens, "idempotency keys": idempotency_keys };
  const parts = Object.entries({ ...counts, "import keys": imported_orders }).map(
    ([what, count]) => `${count.toLocaleString("en")} ${what}`,
  );
  return `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** Copies with a progress bar, until a signal ends it. */
async function copy(store: Store, target: Parameters<Io["fillStore"]>[0], io: Io): Promise<Copied> {
  using progress = createProgress(io, STEPS);
  const stop = new AbortController();
  void io.untilStopped().then(() => stop.abort());
  const show = (rows: number, total: number) =>
    progress.update(total === 0 ? STEPS : Math.floor((STEPS * rows) / total));
  return await store.snapshot((from) =>
    io.fillStore(target, (into) => copyRows(from, into, show, stop.signal)),
  );
}

/**
 * Copies the whole database into an empty one, of the same kind or the other.
 * @throws {AppError} operator
 */
export async function copyStore({ to, layout }: Copy, flags: Flags, io: Io): Promise<void> {
  const config = readConfig(io.environment, flags);
  const postgres_layout = layout ?? config.postgres_layout;
  const target = { database_url: readDatabaseUrl("--to", to), postgres_layout };
  const store = await io.openStore({ ...config, exclusive: false, create: false, now: io.now });
  const began_ms = performance.now();
  try {
    const copied = await copy(store, target, io);
    const seconds = ((performance.now() - began_ms) / 1000).toFixed(1);
    const [source, copied_to] = [config, target].map((end) => shownDatabase(end.database_url));
    io.stdout(`${copied_to} has all of ${source}: ${describe(copied)}. `);
    io.stdout(`Read back and compared, in ${seconds} s\n`);
  } finally {
    await store.close();
  }
}
