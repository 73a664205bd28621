/** Moves a shop in, as often as one likes until the switch. */
import { statSync } from "node:fs";
import { formatNumber } from "../../base/count-text.ts";
import { fail } from "../../base/error.ts";
import { createReport } from "../files/report.ts";
import { openSpool } from "../files/spool.ts";
import { type CommandSystem, withStore } from "../system/system.ts";
import { bring } from "./bring.ts";
import { findHere, readAll } from "./orders.ts";
import { readRules, type ShopName } from "./rules.ts";
import { readShopify } from "./shopify.ts";
import { readWooCommerce, type SaveOptions, saveOrders } from "./woocommerce.ts";

const readers = { woocommerce: readWooCommerce, shopify: readShopify };

interface MoveInOptions extends SaveOptions {
  readonly rules?: string;
  readonly rejects?: string;
  readonly dryRun?: boolean;
}

/** A server may be running. @throws {AppError} operator if an order is rejected, or differs afterwards */
export async function moveIn(
  shop: ShopName,
  system: CommandSystem,
  sources: readonly string[],
  options: MoveInOptions,
): Promise<void> {
  const { dryRun = false } = options;
  const rules = readRules(shop, options.rules);
  using report = createReport(system, options.rejects);
  const { counts } = report;
  const isUrl = (source: string) => shop === "woocommerce" && /^https?:/.test(source);
  const paths = await Array.fromAsync(sources, (source) =>
    isUrl(source) ? saveOrders(source, options, system, report) : source,
  );
  // A pipe can be read only once.
  const missing = paths.find((path) => !statSync(path, { throwIfNoEntry: false })?.isFile());
  if (missing !== undefined)
    fail("operator", `Cannot read ${missing}: there is no regular file of this name`);
  const use = dryRun ? ({ mode: "read" } as const) : { create: true };
  const { differences, table } = await withStore(system, use, async (store) => {
    using spool = openSpool(system);
    const move = { store, rules, spool, report, dryRun };
    const entries = await readAll(readers[shop](paths, system, rules, spool), move);
    if (entries.length + counts.rejected + counts.ignored === 0)
      fail("operator", "There are no orders");
    await findHere(entries, store);
    return await bring(entries, move);
  });
  if (!dryRun) system.stdout(`${differences.join("")}${table()}`);
  report.finish();
  const names = ["updated", "unchanged", "erased", "rejected", "ignored"] as const;
  const others = names.map((name) => `${formatNumber(counts[name])} ${name}`).join(", ");
  const [orders, users] = [counts.created, counts.users].map(formatNumber);
  const did = `${dryRun ? "Would move in" : "Moved in"} ${orders} orders (${others}) and ${users} users`;
  const { length } = differences;
  const message = length === 0 ? did : `${did}; ${formatNumber(length)} orders differ`;
  if (length + counts.rejected > 0) fail("operator", message);
  system.stderr(`${message}\n`);
}
