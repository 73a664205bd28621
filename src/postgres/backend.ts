/** Opens a PostgreSQL database: its connections, its schema, and its store. */
import { redactPassword } from "../database-url.ts";
import type { OpenStore } from "../store.ts";
import { describePostgresError } from "./errors.ts";
import { openMigrated } from "./migrate.ts";
import { createNumbering } from "./numbering.ts";
import { createStore } from "./store.ts";
import { findUnsafeSettings } from "./unsafe-settings.ts";

/** Any number of processes may open the same database. @see OpenStore */
export const openPostgres: OpenStore = async (options) => {
  try {
    const { db, placement } = await openMigrated(options);
    try {
      const dangers = await db.run("read", (session) => findUnsafeSettings(session, db.settings));
      for (const danger of dangers) options.onWarning?.(danger);
      // After a restore, the totals follow from the first call.
      if (options.mode === "serve") await createNumbering(db, false)();
      return createStore(db, placement, options);
    } catch (error) {
      await db.close();
      throw error;
    }
  } catch (error) {
    throw describePostgresError(`Cannot open ${redactPassword(options.databaseUrl)}`, error);
  }
};
