/** The parts of a store that differ on Citus. */
import { redactPassword } from "../../database-url.ts";
import type { LargePages } from "../../large-page.ts";
import type { Store } from "../../store.ts";
import { checkDatabase } from "../check.ts";
import type { Connection } from "../connection.ts";
import { withCopySource } from "../copy-source.ts";
import { citus_sections } from "./check.ts";
import { openCitusCopySource } from "./copy-source.ts";
import { createCitusBulkStores } from "./import.ts";
import { createCitusOrderStore } from "./orders.ts";
import { createCitusUserStore } from "./users.ts";
import { createCitusWriter } from "./writer.ts";

type CitusStores = Pick<Store, "users" | "orders" | "bulk" | "withCopySource" | "check">;

/** @param database_url named in messages for the operator */
export function createCitusStores(
  connection: Connection,
  large_pages: LargePages,
  database_url: string,
): CitusStores {
  const { db, now } = connection;
  const writer = createCitusWriter(connection);
  return {
    users: createCitusUserStore(connection, writer, large_pages),
    orders: createCitusOrderStore(connection, writer, large_pages),
    bulk: createCitusBulkStores(db, now),
    withCopySource: (work) =>
      withCopySource(db, redactPassword(database_url), work, openCitusCopySource),
    check: () => checkDatabase(db, citus_sections),
  };
}
