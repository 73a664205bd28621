import { redactPassword } from "../database-url.ts";
import { type CommandSystem, configOf, withStore } from "./system.ts";

/**
 * Brings the schema up to date, as the start of a server does.
 * @throws {AppError} operator if there is no database, or a server is using a SQLite file
 */
export async function migrateStore(system: CommandSystem): Promise<void> {
  const database = redactPassword(configOf(system).databaseUrl);
  let result = `The schema of ${database} is up to date`;
  const onMigration = (from: number, to: number) => {
    result = `Migrated the schema of ${database} from version ${from} to ${to}`;
  };
  await withStore(system, { mode: "serve", onMigration }, async () => {});
  system.stdout(`${result}\n`);
}
