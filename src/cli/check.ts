import { type Flags, readConfig, redactPassword } from "../config.ts";
import { fail } from "../error.ts";
import type { Io } from "./context.ts";

/**
 * Walks a whole database, beside a running server too, and says what is wrong with it.
 * @throws {AppError} operator when anything is
 */
export async function checkStore(flags: Flags, io: Io): Promise<void> {
  const config = readConfig(io.environment, flags);
  const options = { ...config, exclusive: false, create: false, now: io.now };
  const store = await io.openStore(options);
  let findings: readonly string[] = [];
  try {
    findings = await store.check();
  } finally {
    // Closing a damaged database can fail, too: the findings say more.
    await store.close().catch((error) => {
      if (findings.length === 0) throw error;
    });
  }
  for (const finding of findings) io.stdout(`${finding}\n`);
  if (findings.length > 0) {
    const problems = findings.length === 1 ? "1 problem" : `${findings.length} problems`;
    fail("operator", `${redactPassword(config.database_url)} is damaged: ${problems} found`);
  }
  io.stdout("ok\n");
}
