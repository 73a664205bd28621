/** Backup and restore are not offered on PostgreSQL: `pg_dump` and `pg_restore` do it better. */
import { fail } from "../../base/error.ts";
import type { BackUpStore, CheckArchive, ListArchive, RestoreStore } from "../../domain/store.ts";

/** @see BackUpStore */
export const backUpPostgres: BackUpStore = async ({ path }) => {
  fail("operator", `Cannot back up to ${path}: use \`pg_dump --format=custom\` for PostgreSQL`);
};

/** @see RestoreStore */
export const restorePostgres: RestoreStore = async ({ from }) => {
  const source = typeof from === "string" ? from : from.storage.url;
  fail("operator", `Cannot restore ${source}: use \`pg_restore\` for PostgreSQL`);
};

export const checkPostgresArchive: CheckArchive & ListArchive = async ({ url }) => {
  fail("operator", `Cannot read ${url}: only a SQLite database has an archive`);
};
