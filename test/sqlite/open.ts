import { openSqlite } from "../../src/sqlite/backend.ts";
import type { Store, StoreOptions } from "../../src/store.ts";

/** Opens a database as a server does, unless the options say otherwise. */
export function openDatabase(
  database_url: string,
  options: Partial<StoreOptions> = {},
): Promise<Store> {
  return openSqlite({
    database_url,
    max_pending_writes: 1000,
    max_unsent_bytes: 2 ** 25,
    exclusive: true,
    create: true,
    now: () => new Date(),
    ...options,
  });
}
