/** Reads all orders of a shop before anything is written: what two of them have in common decides on both. */
import { fail } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import { createOrderParser } from "../../domain/import-rules.ts";
import type { Order } from "../../domain/order.ts";
import type { Page, PageQuery } from "../../domain/page.ts";
import type { Store } from "../../domain/store.ts";
import type { Place, Spool } from "../files/spool.ts";
import type { Report } from "./report.ts";
import type { Rules } from "./rules.ts";
import { type Found, problemOf, type ShopOrder, type ShopRecord } from "./shop-order.ts";

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

/** @returns what has these references */
export async function findAll<Row extends Pick<Order, "reference">>(
  list: (query: PageQuery & { reference: string }) => MaybePromise<Page>,
  references: readonly string[],
): Promise<Map<string, Row>> {
  const found = new Map<string, Row>();
  for (let start = 0; start < references.length; start += 100) {
    const some = references.slice(start, start + 100);
    const pages = some.map((reference) => list({ limit: 1, offset: 0, reference }));
    for (const { records } of await Promise.all(pages)) {
      const row: Row | null = JSON.parse(records || "null");
      if (row !== null) found.set(`${row.reference}`, row);
    }
    // SQLite keeps a snapshot until the end of the turn.
    await yieldToEventLoop();
  }
  return found;
}

/** Reads orders in batches, each with what is here. @param verb for the progress */
export async function* batchesOf(entries: readonly Entry[], verb: string, { store, report }: Move) {
  for (let start = 0; start < entries.length; start += BATCH_RECORDS) {
    const some = entries.slice(start, start + BATCH_RECORDS);
    const references = some.map(({ reference }) => reference);
    const stored = await findAll<Order>(store.orders.list, references);
    yield some.map((entry) => [entry, stored.get(entry.reference)] as const);
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
      const entry: Entry = { ...order, reference, created_at, place, record, here: null };
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

/** @throws {AppError} operator if a new order is here with another number */
async function requireSameNumbers(entries: readonly Entry[], { orders }: Store): Promise<void> {
  const keyOf = (id: unknown, time: string) => `${id} ${time}`;
  const added = entries.filter(({ here, id }) => here === null && id !== "");
  const byKey = new Map(added.map((entry) => [keyOf(entry.id, entry.created_at), entry]));
  const [{ created_at: createdFrom } = { created_at: "" }] = added;
  let after = added.length === 0 ? null : 0;
  while (after !== null) {
    const page: Page = await orders.list({
      limit: 50,
      offset: 0,
      after,
      created_from: createdFrom,
    });
    for (const { id, reference, created_at, metadata } of JSON.parse(`[${page.records}]`)) {
      const entry = byKey.get(keyOf(metadata.shop_id, created_at));
      if (entry === undefined || reference === null) continue;
      const both = `has the number ${entry.reference} now, and is here as ${reference}`;
      const advice = `change the reference of order ${id}`;
      fail("operator", `The order ${describe(entry)} ${both}: ${advice}`);
    }
    after = page.nextAfter;
  }
}

/** Looks up whose the orders are here. @throws {AppError} operator if one is of another shop, or has another number here */
export async function findHere(entries: readonly Entry[], move: Move): Promise<void> {
  for await (const batch of batchesOf(entries, "Looked up", move)) {
    for (const [entry, order] of batch) {
      if (order === undefined) continue;
      const { shop_id: id = "", shop_person: person } = order.metadata;
      const isUnlike = entry.id === "" && id !== "" && order.created_at !== entry.created_at;
      if (isUnlike || isOther(id, entry.id)) failTwoShops(entry, `${id} as order ${order.id}`);
      const isOfBuyer = person === undefined ? null : person === entry.person;
      entry.here = { userId: order.user_id, isOfBuyer };
    }
  }
  await requireSameNumbers(entries, move.store);
}
