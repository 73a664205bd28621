import { formatCounts } from "../base/count-text.ts";
import { redactPassword } from "../base/database-url.ts";
import { readUrl } from "../domain/config.ts";
import { copyRows } from "../domain/copy.ts";
import { type CommandSystem, stopSignal, withStore } from "./system/system.ts";

/** Copies the whole database into an empty one. A server may be running. */
export async function copyStore(system: CommandSystem, { to }: { to: string }): Promise<void> {
  const targetUrl = readUrl("databaseUrl", "--to", to, system.environment);
  const { databaseUrl } = system.config;
  await withStore(system, { mode: "read" }, async (store) => {
    const [source, target] = [databaseUrl, targetUrl].map(redactPassword);
    const isMissed = "what it writes after the copy has started is not copied";
    if (system.backendOf(databaseUrl).isServed(databaseUrl))
      system.stderr(`A server is using ${source}: ${isMissed}\n`);
    const signal = stopSignal(system);
    const { withCopyTarget } = system.backendOf(targetUrl);
    const counts = await store.withCopySource((source) =>
      withCopyTarget(targetUrl, (target) => copyRows(source, target, signal)),
    );
    const copied = formatCounts({
      user: counts.users,
      order: counts.orders,
      token: counts.tokens,
      "idempotency key": counts.idempotency_keys,
      change: counts.changes,
    });
    system.stdout(`Copied ${source} to ${target} (verified): ${copied}\n`);
  });
}
