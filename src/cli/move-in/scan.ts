/** Reads all orders of a shop before anything is written: what two of them have in common decides on both. */
import { fail } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import type { Order } from "../../domain/order.ts";
import type { Page, PageQuery } from "../../domain/page.ts";
import type { Store } from "../../domain/store.ts";
import type { Report } from "./report.ts";
import { type Found, problemOf, type ShopOrder } from "./shop-order.ts";
import type { Place, Spool } from "./spool.ts";

/** An order of the shop, whose record is in the spool, and of the one that is here. */
export interface Entry
  extends Omit<ShopOrder, "record">,
    Pick<ShopOrder["record"], "reference" | "created_at"> {
  readonly place: Found["place"];
  readonly record: Place;
  /** Whose the order with this reference is, before this run; `null` if there is none. */
  here: {
    readonly userId: number;
    /** Whether the shop has not changed whose it is. `null` if it was erased, or made here: then it keeps its user. */
    readonly isOfBuyer: boolean | null;
  } | null;
}

/** Orders that are looked up or written together: the writes of a running server wait for a transaction. */
const BATCH_RECORDS = 1000;

/** @returns what has one of the values of a unique field, by this value */
export async function findBy<Row>(
  list: (query: PageQuery & Partial<Record<"reference" | "email", string>>) => MaybePromise<Page>,
  field: "reference" | "email",
  values: readonly string[],
): Promise<Map<string, Row>> {
  const found = new Map<string, Row>();
  for (let start = 0; start < values.length; start += 100) {
    const some = values.slice(start, start + 100);
    const read = some.map((value) => list({ limit: 1, offset: 0, [field]: value }));
    for (const [index, { records }] of (await Promise.all(read)).entries())
      if (records !== "") found.set(some[index] ?? "", JSON.parse(records));
    // SQLite keeps a snapshot until the end of the turn.
    await yieldToEventLoop();
  }
  return found;
}

export function findOrders(entries: readonly Entry[], { orders }: Store) {
  const references = entries.map(({ reference }) => reference);
  return findBy<Order>(orders.list, "reference", references);
}

/** Reads orders in batches, each with what is here. @param verb for the progress */
export async function* batchesOf(
  entries: readonly Entry[],
  verb: string,
  store: Store,
  report: Report,
): AsyncGenerator<readonly (readonly [Entry, Order | undefined])[]> {
  for (let start = 0; start < entries.length; start += BATCH_RECORDS) {
    const some = entries.slice(start, start + BATCH_RECORDS);
    const stored = await findOrders(some, store);
    yield some.map((entry) => [entry, stored.get(entry.reference)]);
    const end = start + some.length;
    report.progress(verb, end, end === entries.length);
  }
}

function describe({ id, created_at, place: { file, line } }: Entry): string {
  return `${id} of ${created_at} at line ${line} of ${file}`;
}

function failTwoShops(entry: Entry, other: string): never {
  const advice = 'if they are of two shops, move one in with a rule such as {"prefix": "b-"}';
  const both = `${other} and ${describe(entry)}`;
  return fail("operator", `Two orders have the reference ${entry.reference}: ${both}; ${advice}`);
}

/** The id can be missing. */
const isOther = (id: string, other: string) => id !== "" && other !== "" && id !== other;

/** @returns the newest version of each order, in the order of their times. @throws {AppError} operator if two have one reference */
export async function scan(found: AsyncIterable<Found>, spool: Spool, report: Report) {
  const entries = new Map<string, Entry>();
  const references = new Map<string, string>();
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
      const { reference, created_at } = order.record;
      const fields = { reference, created_at, place, here: null };
      const entry: Entry = { ...order, ...fields, record: spool.add(order.record) };
      const known = entries.get(reference);
      if (known && (isOther(known.id, order.id) || known.created_at !== created_at))
        failTwoShops(entry, describe(known));
      const number = order.id === "" ? reference : references.getOrInsert(order.id, reference);
      if (number !== reference)
        fail("operator", `The order ${describe(entry)} has the numbers ${number} and ${reference}`);
      if (known === undefined || known.modified <= order.modified) entries.set(reference, entry);
    } catch (error) {
      report.reject(place, problemOf(error), original);
    }
  }
  report.progress("Read", count, true);
  return [...entries.values()].sort((one, other) => (one.created_at < other.created_at ? -1 : 1));
}

/** Looks up whose the order is here. @throws {AppError} operator if it is of another shop */
export async function findHere(entries: readonly Entry[], store: Store, report: Report) {
  for await (const batch of batchesOf(entries, "Looked up", store, report)) {
    for (const [entry, order] of batch) {
      if (order === undefined) continue;
      const { shop_id: id = "", shop_person: person } = order.metadata;
      const isUnlike = entry.id === "" && id !== "" && order.created_at !== entry.created_at;
      if (isUnlike || isOther(id, entry.id)) failTwoShops(entry, `${id} as order ${order.id}`);
      const isOfBuyer = person === undefined ? null : person === entry.buyer.key;
      entry.here = { userId: order.user_id, isOfBuyer };
    }
  }
}
