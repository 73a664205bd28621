import { redactPassword } from "../base/database-url.ts";
import { fail } from "../base/error.ts";
import { formatCount } from "./count-text.ts";
import { type CommandSystem, withStore } from "./files/system.ts";
import { type JsonOption, printJson } from "./json-output.ts";

/**
 * Verifies the database and prints its problems. A server may be running.
 * @throws {AppError} operator if there are problems
 */
export async function checkStore(system: CommandSystem, { json }: JsonOption): Promise<void> {
  const onWarning = (warning: string) => system.stderr(`${warning}\n`);
  await withStore(system, { mode: "read", onWarning }, async (store, { databaseUrl }) => {
    const problems = await store.check();
    if (json) printJson(system, { problems });
    else if (problems.length === 0) system.stdout("ok\n");
    else for (const problem of problems) system.stdout(`${problem}\n`);
    if (problems.length === 0) return;
    const found = formatCount(problems.length, "problem");
    fail("operator", `${redactPassword(databaseUrl)} is damaged: ${found} found`);
  });
}
