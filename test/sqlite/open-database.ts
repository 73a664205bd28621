import { openSqlite } from "../../src/sqlite/backend.ts";
import type { Store, StoreOptions } from "../../src/store.ts";
import { storeOptions } from "../open-store.ts";

/** Opens a database as a server does, unless the options say otherwise. */
export function openDatabase(
  databaseUrl: string,
  options: Partial<StoreOptions> = {},
): Promise<Store> {
  return openSqlite({ ...storeOptions, databaseUrl, ...options });
}
