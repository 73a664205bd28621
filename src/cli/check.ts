import { type Flags, readConfig, shownDatabase } from "../config.ts";
import { fail } from "../error.ts";
import type { Io } from "./io.ts";

/**
 * Walks a whole database, beside a running server too, and says what is wrong with it.
 * @throws {AppError} operator when anything is
 */
export async function checkStore(flags: Flags, io: Io): Promise<void> {
  const config = readConfig(io.environment, flags);
  const options = { ...config, exclusive: false, create: false, now: io.now };
  const store = await io.openStore(options);
  try {
    const findings = await store.check();
    for (const finding of findings) io.stdout(`${finding}\n`);
    if (findings.length > 0)
      fail("operator", `Cannot call ${shownDatabase(config.database_url)} sound`);
    io.stdout("ok\n");
  } finally {
    await store.close();
  }
}
