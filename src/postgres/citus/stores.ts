/** The parts of a store that depend on the layout, for Citus. */
import { redactPassword } from "../../database-url.ts";
import { checkDatabase } from "../check.ts";
import type { Connection, LayoutStores } from "../connection.ts";
import { withCopySource } from "../copy-source.ts";
import { citus_sections } from "./check.ts";
import { openCitusCopySource } from "./copy-source.ts";
import { createCitusBulkStores } from "./import.ts";
import { createCitusOrderStore } from "./orders.ts";
import { createCitusUserStore } from "./users.ts";
import { createCitusWriter } from "./writer.ts";

/** @param database_url named in messages for the operator */
export function createCitusStores(connection: Connection, database_url: string): LayoutStores {
  const { db, now } = connection;
  const writer = createCitusWriter(connection);
  return {
    users: createCitusUserStore(connection, writer),
    orders: createCitusOrderStore(connection, writer),
    bulk: createCitusBulkStores(db, now),
    withCopySource: (work) =>
      withCopySource(db, redactPassword(database_url), work, openCitusCopySource),
    check: () => checkDatabase(db, citus_sections),
  };
}
