import { formatCount } from "../base/count-text.ts";
import { fail } from "../base/error.ts";
import { type CommandSystem, type JsonOption, printResult, withStore } from "./system/system.ts";

/** A server may be running. @throws {AppError} operator if the database has problems, which are printed */
export async function checkStore(system: CommandSystem, { json }: JsonOption): Promise<void> {
  const onWarning = (warning: string) => system.stderr(`${warning}\n`);
  await withStore(system, { mode: "read", onWarning }, async (store) => {
    const problems = await store.check();
    const text = problems.map((problem) => `${problem}\n`).join("") || "ok\n";
    printResult(system, json, { problems }, text);
    if (problems.length === 0) return;
    const found = formatCount(problems.length, "problem");
    fail("operator", `${system.database} is damaged: ${found} found`);
  });
}
