/** What a server of databases does better: its own tools know all of it, and make consistent copies. */
import { fail } from "../error.ts";
import type { RestoreStore, Store } from "../store.ts";

export const backUp: Store["backUp"] = async (path) => {
  fail("operator", `Cannot back up to ${path}: PostgreSQL has \`pg_dump --format=custom\` for it`);
};

/** @see RestoreStore */
export const restorePostgres: RestoreStore = async ({ from }) => {
  fail("operator", `Cannot restore ${from}: PostgreSQL has \`pg_restore\` for it`);
};
