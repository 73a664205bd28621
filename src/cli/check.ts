import type { Flags } from "../config.ts";
import { redactPassword } from "../database-url.ts";
import { fail } from "../error.ts";
import { type Io, withStore } from "./context.ts";
import { formatCount } from "./text.ts";

/**
 * Verifies the database and prints its problems. A server may be running.
 * @throws {AppError} operator if there are problems
 */
export async function checkStore(flags: Flags, io: Io): Promise<void> {
  await withStore(flags, io, { create: false }, async (store, { database_url }) => {
    const problems = await store.check();
    for (const problem of problems) io.stdout(`${problem}\n`);
    if (problems.length === 0) return;
    const found = formatCount(problems.length, "problem");
    fail("operator", `${redactPassword(database_url)} is damaged: ${found} found`);
  });
  io.stdout("ok\n");
}
