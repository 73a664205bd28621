/** Moves a shop in, as often as one likes until the switch. */
import { fail, problemOf } from "../../base/error.ts";
import { createImporter } from "../../domain/bulk.ts";
import { createOrderParser, type OrderImport } from "../../domain/import-rules.ts";
import { MAX_METADATA_KEYS } from "../../domain/metadata.ts";
import { leadsTo, type Order } from "../../domain/order.ts";
import { findAll } from "../../domain/record-store.ts";
import { createComparison } from "../files/comparison.ts";
import { createReport } from "../files/report.ts";
import { openSpool } from "../files/spool.ts";
import { requireFile } from "../system/streams.ts";
import { type CommandSystem, withStore } from "../system/system.ts";
import { type Entry, findHere, type Move, readAll } from "./orders.ts";
import { bringPeople } from "./people.ts";
import { type Rules, readRules, type ShopName } from "./rules.ts";
import { OWN_KEY, type ShopRecord } from "./shop-order.ts";
import { readShopify } from "./shopify.ts";
import { readWooCommerce, type SaveOptions, saveOrders } from "./woocommerce.ts";

const readers = { woocommerce: readWooCommerce, shopify: readShopify };

/** Orders that are looked up or written together: the writes of a running server wait for a transaction. */
const BATCH_RECORDS = 1000;

/** @returns the stored order without its reference, if it was canceled and is revived in the shop; otherwise `null` */
function withoutReference(stored: Order, { status }: ShopRecord, { statuses }: Rules) {
  const { shop_status = "", shop_person: _, ...others } = stored.metadata;
  const wasCanceled = stored.status === "canceled" && statuses[shop_status] === "canceled";
  if (!wasCanceled || status === "canceled") return null;
  const note = `The shop has revived it: the new order is ${stored.reference}`;
  return { ...stored, reference: null, metadata: { ...others, ["shop_note"]: note } };
}

/** What has changed here stays: a status that is further, a larger refund, and metadata that is not of the shop. */
function mergeWith(stored: Order, record: ShopRecord, isNew: boolean): ShopRecord {
  // A spreadsheet can have rounded the id.
  const isKept = (key: string) => key === "shop_id" || !OWN_KEY.test(key);
  const kept = Object.entries(stored.metadata).filter(([key]) => isKept(key));
  const pairs = [...new Map([...kept, ...Object.entries(record.metadata)])];
  const metadata = Object.fromEntries(pairs.slice(0, MAX_METADATA_KEYS));
  if (isNew) return { ...record, metadata };
  const status = leadsTo(record.status, stored.status) ? stored.status : record.status;
  return { ...record, metadata, status, refunded: Math.max(stored.refunded, record.refunded) };
}

/** @returns the comparison; of a dry run, an empty one */
async function bring(entries: readonly Entry[], move: Move) {
  const { store, rules, spool, report, dryRun } = move;
  const { counts } = report;
  const people = await bringPeople(entries, move);
  const importSome = createImporter(store.bulk.orders, { update: true, keepItems: true, dryRun });
  const [parse, comparison] = [createOrderParser(), createComparison()];

  for (let start = 0; start < entries.length; start += BATCH_RECORDS) {
    const batch = entries.slice(start, start + BATCH_RECORDS);
    const before = await findAll<Order>(store.orders.list, batch);
    const revived: OrderImport[] = [];
    const given: { entry: Entry; record: ShopRecord; order: OrderImport }[] = [];
    for (const entry of batch) {
      const here = before.get(entry.reference);
      const record = spool.read<ShopRecord>(entry.record);
      if (here === undefined && dryRun) {
        counts.created += 1;
        continue;
      }
      const { ["shop_status"]: status } = record.metadata;
      // A shop need not say that what it refunded was completed.
      if (status === "refunded" && here?.status === "delivered") record.status = "delivered";
      const old = here ? withoutReference(here, record, rules) : null;
      const merged = here ? mergeWith(here, record, old !== null) : record;
      const { total: _, ...fields } = merged;
      const { user } = people.get(entry.person) ?? {};
      const kept = { user_id: here?.user_id ?? 1 };
      const ownUser = entry.isOfBuyer === false && !dryRun ? user : kept;
      try {
        given.push({ entry, record, order: parse({ ...fields, ...ownUser }) });
        if (old !== null) revived.push(old);
      } catch (error) {
        report.reject(entry.place, problemOf(error), merged);
      }
    }
    // First, and by itself: a run that ends before the next call is completed by the next run.
    if (revived.length > 0) await importSome(revived);
    const results = await importSome(given.map(({ order }) => order));
    const compared = given.filter(({ entry, order }, index) => {
      const result = results[index];
      if (result?.outcome === "rejected") report.reject(entry.place, result.reason, order);
      else if (result) counts[result.outcome] += 1;
      // What is erased stays as it is.
      return !dryRun && result?.outcome !== "erased";
    });
    const written = compared.map(({ entry }) => entry);
    const stored = await findAll<Order>(store.orders.list, written);
    for (const { record } of compared)
      comparison.add(record.reference, record, stored.get(record.reference));
    report.progress("Brought", start + batch.length, start + batch.length === entries.length);
  }
  return comparison;
}

type MoveInOptions = SaveOptions &
  Partial<Readonly<Record<"rules" | "rejects", string>>> & { readonly dryRun?: boolean };

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
  // Before what can take hours.
  sources.filter((source) => !isUrl(source)).forEach(requireFile);
  const paths = await Array.fromAsync(sources, (source) =>
    isUrl(source) ? saveOrders(source, options, system, report) : source,
  );
  const use = dryRun ? ({ mode: "read" } as const) : { create: true };
  const { differences, table } = await withStore(system, use, async (store) => {
    using spool = openSpool(system);
    const move = { store, rules, spool, report, dryRun };
    const entries = await readAll(readers[shop](paths, system, move), move);
    if (entries.length + counts.rejected + counts.ignored === 0)
      fail("operator", "There are no orders");
    await findHere(entries, store);
    return await bring(entries, move);
  });
  if (!dryRun) system.stdout(`${differences.join("")}${table()}`);
  report.finish(dryRun ? "Would move in" : "Moved in", differences.length);
}
