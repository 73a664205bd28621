import { redactPassword } from "../base/database-url.ts";
import type { Backend } from "../domain/store.ts";
import { describePostgresError } from "./server/errors.ts";
import { findUnsafeSettings } from "./server/unsafe-settings.ts";
import { createStore } from "./store.ts";
import { createNumbering } from "./tables/numbering.ts";
import { openMigrated } from "./whole/migrate.ts";
import { advanceLate } from "./whole/rows.ts";

/** Any number of processes may open the same database. @see Backend.open */
export const openPostgres: Backend["open"] = async (options) => {
  try {
    const { db, placement } = await openMigrated(options);
    try {
      const dangers = await db.run("read", (session) => findUnsafeSettings(session, db.settings));
      for (const danger of dangers) options.onWarning?.(danger);
      if (options.mode === "serve" || options.mode === "write")
        await advanceLate(db, placement, options.onWarning);
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
