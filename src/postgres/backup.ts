/** Backup and restore are not offered on PostgreSQL: `pg_dump` and `pg_restore` do it better. */
import { fail } from "../error.ts";
import type { RestoreStore, Store } from "../store.ts";

export const backUp: Store["backUp"] = async (path) => {
  fail("operator", `Cannot back up to ${path}: use \`pg_dump --format=custom\` for PostgreSQL`);
};

/** @see RestoreStore */
export const restorePostgres: RestoreStore = async ({ from }) => {
  fail("operator", `Cannot restore ${from}: use \`pg_restore\` for PostgreSQL`);
};
