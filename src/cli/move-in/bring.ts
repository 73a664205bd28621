/** Brings the users and orders of a shop that has been read, and compares them with what is here then. */
import { createOrderParser, type OrderImport } from "../../domain/import-rules.ts";
import { MAX_METADATA_KEYS } from "../../domain/metadata.ts";
import { leadsTo, type Order } from "../../domain/order.ts";
import { bringPeople, createImporter, type Move, needsUser } from "./people.ts";
import { type Amounts, createTable } from "./report.ts";
import type { Rules } from "./rules.ts";
import { batchesOf, type Entry, findOrders } from "./scan.ts";
import { OWN_KEY, problemOf, type ShopRecord } from "./shop-order.ts";
import { formatAmount } from "./values.ts";

/**
 * What has changed here stays: a status that is further, a larger refund, and metadata that is not of the shop.
 * @returns the order as it is brought, and the one that gives it its reference, if it was canceled and revived in the shop
 */
function mergeWith(stored: Order, record: ShopRecord, { statuses }: Rules) {
  const { reference, metadata } = stored;
  // A spreadsheet can have rounded the id.
  const isKept = (key: string) => key === "shop_id" || !OWN_KEY.test(key);
  const kept = Object.fromEntries(Object.entries(metadata).filter(([key]) => isKept(key)));
  const merged = Object.entries({ ...kept, ...record.metadata }).slice(0, MAX_METADATA_KEYS);
  const order = { ...record, metadata: Object.fromEntries(merged) };
  const { shop_status = "", shop_person: _, ...others } = metadata;
  const wasCanceled = stored.status === "canceled" && statuses[shop_status] === "canceled";
  if (wasCanceled && record.status !== "canceled") {
    const note = `The shop has revived it: the new order is ${reference}`;
    const old = { ...stored, reference: null, metadata: { ...others, ["shop_note"]: note } };
    return { order, old };
  }
  const status = leadsTo(record.status, stored.status) ? stored.status : record.status;
  const refunded = Math.max(stored.refunded, record.refunded);
  return { order: { ...order, status, refunded }, old: null };
}

/** @returns what differs, on both sides; empty if they agree */
function differenceOf(shop: Amounts, order: Amounts | undefined): string {
  if (order === undefined) return "is not here";
  const textsOf = ({ currency, status, total, refunded }: Amounts) => [
    `${formatAmount(total, currency)} ${currency}`,
    status,
    `${formatAmount(refunded, currency)} ${currency} refunded`,
  ];
  const here = textsOf(order);
  const sides = textsOf(shop).map((text, index) => [text, here[index]]);
  const different = sides.filter(([one, other]) => one !== other);
  return different.map(([one, other]) => `${one} in the shop, ${other} here`).join("; ");
}

/** @returns what differs, an order a line, and the table; of a dry run, nothing */
export async function bring(entries: readonly Entry[], move: Move) {
  const { store, rules, spool, report, dryRun } = move;
  const { counts } = report;
  const people = await bringPeople(entries, move);
  const [parse, importSome] = [createOrderParser(), createImporter(store.bulk.orders, dryRun)];
  const table = createTable();
  const differences: string[] = [];

  for await (const batch of batchesOf(entries, "Brought", store, report)) {
    const revived: OrderImport[] = [];
    const given: (readonly [Entry, OrderImport])[] = [];
    for (const [entry, here] of batch) {
      const record = spool.read<ShopRecord>(entry.record);
      try {
        const { order, old } = here ? mergeWith(here, record, rules) : { order: record, old: null };
        const { total: _, ...fields } = order;
        const { user } = people.get(entry.buyer.key) ?? {};
        // A dry run has brought no user: any number stands for a new one.
        const kept = { user_id: here?.user_id ?? 1 };
        const parsed = parse({ ...fields, ...(needsUser(entry) && !dryRun ? user : kept) });
        if (old !== null) revived.push(old);
        if (dryRun && here === undefined) counts.created += 1;
        else given.push([entry, parsed]);
      } catch (error) {
        report.reject(entry.place, problemOf(error), record);
      }
    }
    // First, and by itself: a run that ends before the next call is completed by the next run.
    if (revived.length > 0) await importSome(revived);
    const results = await importSome(given.map(([, order]) => order));
    const erased = new Set<Entry>();
    for (const [index, [entry, order]] of given.entries()) {
      const { [index]: result } = results;
      if (result?.outcome === "rejected") report.reject(entry.place, result.reason, order);
      else if (result) counts[result.outcome] += 1;
      if (result?.outcome === "erased") erased.add(entry);
    }
    // What is erased stays as it is.
    const compared = dryRun ? [] : batch.map(([entry]) => entry).filter((it) => !erased.has(it));
    const stored = await findOrders(compared, store);
    for (const { reference, record } of compared) {
      const [shop, order] = [spool.read<ShopRecord>(record), stored.get(reference)];
      table.add(shop, 0);
      if (order !== undefined) table.add(order, 1);
      const difference = differenceOf(shop, order);
      if (difference !== "") differences.push(`${reference}: ${difference}\n`);
    }
  }
  return { differences, table };
}
