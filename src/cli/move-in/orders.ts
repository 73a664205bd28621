/** Reads all orders of a shop before anything is written: what two of them have in common decides on both. */
import { fail, problemOf } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import { createOrderParser } from "../../domain/import-rules.ts";
import type { Order } from "../../domain/order.ts";
import { ALWAYS_FITTING, type Page } from "../../domain/page.ts";
import type { Store } from "../../domain/store.ts";
import type { FilePlace, Report } from "../files/report.ts";
import type { Place, Spool } from "../files/spool.ts";
import type { Rules } from "./rules.ts";
import type { Found, ShopOrder, ShopRecord } from "./shop-order.ts";

export interface Move {
  readonly store: Store;
  readonly rules: Rules;
  readonly spool: Spool;
  readonly report: Report;
  readonly dryRun: boolean;
}

/** An order of the shop, whose record is in the spool, and of the one that is here. */
export interface Entry
  extends Omit<ShopOrder, "record">,
    Pick<ShopRecord, "reference" | "created_at"> {
  readonly place: FilePlace;
  readonly record: Place;
  /** The user of the order that is here, before this run; `null` if there is none. */
  here: number | null;
  /** Whether it is here, of the same person in the shop. `null` if it was erased, or made here: then it keeps its user. */
  isOfBuyer: boolean | null;
}

function describe({ id, created_at, place: { file, line } }: Entry): string {
  return `${id} of ${created_at} at line ${line} of ${file}`;
}

function failTwoShops(entry: Entry, other: string): never {
  const advice = 'if they are of two shops, move one in with a rule such as {"prefix": "b-"}';
  const both = `${other} and ${describe(entry)}`;
  fail("operator", `Two orders have the reference ${entry.reference}: ${both}; ${advice}`);
}

function failRenumbered(entry: Entry, other: string): never {
  fail("operator", `The order ${describe(entry)} has the numbers ${other} and ${entry.reference}`);
}

/** The id can be missing. */
const isOther = (id: string, other: string) => id !== "" && other !== "" && id !== other;

/** @returns the newest version of each order, in the order of their times. @throws {AppError} operator if two have one reference */
export async function readAll(found: AsyncIterable<Found>, { spool, report }: Move) {
  const entries = new Map<string, Entry>();
  const references = new Map<string, string>();
  const parse = createOrderParser();
  let count = 0;
  for await (const { place, original, convert } of found) {
    count += 1;
    report.progress("Read", count);
    try {
      const order = convert();
      if (order === null) {
        report.counts.ignored += 1;
        continue;
      }
      const { total: _, ...fields } = order.record;
      // Any user stands for that of the order.
      parse({ ...fields, user_id: 1 });
      const { reference, created_at } = fields;
      const record = spool.add(order.record);
      const none = { here: null, isOfBuyer: false };
      const entry: Entry = { ...order, reference, created_at, place, record, ...none };
      const known = entries.get(reference);
      if (known && (isOther(known.id, order.id) || known.created_at !== created_at))
        failTwoShops(entry, describe(known));
      const number = order.id === "" ? reference : references.getOrInsert(order.id, reference);
      if (number !== reference) failRenumbered(entry, number);
      if (known === undefined || known.modified <= order.modified) entries.set(reference, entry);
    } catch (error) {
      report.reject(place, problemOf(error), original);
    }
  }
  report.progress("Read", count, true);
  return [...entries.values()].sort((one, other) => (one.created_at < other.created_at ? -1 : 1));
}

/** Finds whose the orders are here. @throws {AppError} operator if one is of another shop, or has another number */
export async function findHere(entries: readonly Entry[], { orders }: Store): Promise<void> {
  const keyOf = (id: unknown, time: string) => `${id} ${time}`;
  const byReference = new Map(entries.map((entry) => [entry.reference, entry]));
  const byId = new Map(entries.map((entry) => [keyOf(entry.id, entry.created_at), entry]));
  for (let after: number | null = 0; after !== null; ) {
    const page: Page = await orders.list({ limit: ALWAYS_FITTING, offset: 0, after });
    const some: Order[] = JSON.parse(`[${page.records}]`);
    for (const { id, user_id, reference, created_at, metadata } of some) {
      if (reference === null) continue;
      const { shop_id = "", shop_person } = metadata;
      const entry = byReference.get(reference);
      const renamed = byId.get(keyOf(shop_id || null, created_at));
      if (entry === undefined) {
        if (renamed) failRenumbered(renamed, `${reference}, as order ${id} here,`);
        continue;
      }
      const isUnlike = entry.id === "" && shop_id !== "" && created_at !== entry.created_at;
      if (isUnlike || isOther(shop_id, entry.id)) failTwoShops(entry, `${shop_id} as order ${id}`);
      entry.here = user_id;
      entry.isOfBuyer = shop_person === undefined ? null : shop_person === entry.person;
    }
    after = page.nextAfter;
    // SQLite keeps a snapshot until the end of the turn.
    await yieldToEventLoop();
  }
}
