/** The parts of a store that depend on the layout, for Citus. */
import { redactPassword } from "../../database-url.ts";
import { checkDatabase } from "../check.ts";
import type { LayoutStores, StoreContext } from "../context.ts";
import { withCopySource } from "../copy-source.ts";
import { citus_sections } from "./check.ts";
import { openCitusCopySource } from "./copy-source.ts";
import { createCitusBulkStores } from "./import.ts";
import { createCitusOrderStore } from "./orders.ts";
import { createCitusUserStore } from "./users.ts";

/** @param database_url named in messages for the operator */
export function createCitusStores(context: StoreContext, database_url: string): LayoutStores {
  const { db, now } = context;
  return {
    users: createCitusUserStore(context),
    orders: createCitusOrderStore(context),
    bulk: createCitusBulkStores(db, now),
    withCopySource: (work) =>
      withCopySource(db, redactPassword(database_url), work, openCitusCopySource),
    check: () => checkDatabase(db, citus_sections),
  };
}
