import { formatCount } from "../base/count-text.ts";
import { fail } from "../base/error.ts";
import type { DistributeStore } from "../domain/store.ts";
import { type CommandSystem, withStore } from "./system/system.ts";

async function distributeStore(system: CommandSystem, distribute: DistributeStore): Promise<void> {
  const { config, database, stderr, stdout } = system;
  const done = await distribute(config.databaseUrl, (orders, workers) => {
    const what = `${formatCount(orders, "order")} over ${formatCount(workers, "worker")}`;
    stderr(`Distributing ${what}: until the end, requests return 503\n`);
  });
  if (!done) return stdout(`${database} is distributed already\n`);
  stdout(`Distributed ${database}. Restart its servers: until then, they return 503\n`);
}

/** @throws {AppError} operator if a server is using a SQLite file; usage if it cannot be distributed */
export async function migrateStore(system: CommandSystem, options: { distribute?: boolean }) {
  const { config, database } = system;
  const { distribute: available } = system.backendOf(config.databaseUrl);
  const distribute = options.distribute ? available : undefined;
  if (distribute === null)
    fail("usage", `Cannot distribute ${database}: --distribute is for PostgreSQL with Citus`);
  let result = `The schema of ${database} is up to date`;
  const onMigration = (from: number, to: number) => {
    result = `Migrated the schema of ${database} from version ${from} to ${to}`;
  };
  await withStore(system, { mode: "serve", onMigration }, async () => {});
  system.stdout(`${result}\n`);
  if (distribute !== undefined) await distributeStore(system, distribute);
}
