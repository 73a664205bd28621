import type { Session } from "./connection.ts";

/**
 * Collects statistics if a table has grown tenfold. PostgreSQL plans by them, and would collect the first ones of a new
 * database only after a minute, in which its statements would read whole tables.
 * @param before last id before the rows were added
 */
export async function analyzeIfGrown(
  session: Session,
  tables: readonly string[],
  before: number,
  after: number,
): Promise<void> {
  const step = 10 ** Math.floor(Math.log10(Math.max(after, 1)));
  // Smaller tables are read as a whole anyway.
  if (step < 1_000 || before >= step) return;
  try {
    for (const table of tables) await session.script(`analyze ${table}`);
  } catch {
    // Another process analyzes the table, or the role lacks the permission: statements are only slower.
  }
}
