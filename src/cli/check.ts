import { redactPassword } from "../base/database-url.ts";
import { fail } from "../base/error.ts";
import { formatCount } from "./count-text.ts";
import { type CommandSystem, withStore } from "./files/system.ts";

/**
 * Verifies the database and prints its problems. A server may be running.
 * @throws {AppError} operator if there are problems
 */
export async function checkStore(system: CommandSystem): Promise<void> {
  const onWarning = (warning: string) => system.stderr(`${warning}\n`);
  await withStore(system, { mode: "read", onWarning }, async (store, { databaseUrl }) => {
    const problems = await store.check();
    for (const problem of problems) system.stdout(`${problem}\n`);
    if (problems.length === 0) return;
    const found = formatCount(problems.length, "problem");
    fail("operator", `${redactPassword(databaseUrl)} is damaged: ${found} found`);
  });
  system.stdout("ok\n");
}
