/** Sums of orders by interval of time, currency and status. */
import type { Static } from "@sinclair/typebox";
import { failField } from "../base/error.ts";
import { Amount, Closed, Named, OneOf, SafeInteger, Text, Time } from "../base/schema.ts";
import { Order, orderStatuses } from "./order.ts";
import { MAX_PAGE_BYTES } from "./page.ts";
import { type JsonText, jsonText } from "./record.ts";
import type { ClientId } from "./token.ts";

/** How many intervals there can be, including parts. */
const maxIntervals = { day: 366, month: 120 } as const;
export const intervalLengths = ["day", "month"] as const;

/** More do not fit in a response: the shortest has 134 bytes. */
export const MAX_SUMS = 2 ** 15;

export const SumsQuery = Closed({
  created_from: { ...Time, description: "The beginning of the first interval" },
  created_to: { ...Time, description: "The end of the last interval" },
  interval: {
    ...OneOf(intervalLengths),
    default: "day",
    description: "A day, which is the default, or a month: at most 366 or 120, including parts",
  },
  time_zone: {
    ...Text({ minLength: 1, maxLength: 64 }),
    default: "UTC",
    description: "The zone whose midnights divide them, by its name in the IANA list",
  },
});
export type SumsQuery = Static<typeof SumsQuery>;

const { currency, status, refunded } = Order.properties;

export const OrderSum = Named("OrderSum", {
  ...{ from: Time, to: Time, currency, status },
  orders: SafeInteger(1, "The number of orders"),
  total: Amount(0, "In the minor unit of the currency"),
  refunded,
});
export type OrderSum = Static<typeof OrderSum>;

/**
 * Reads all orders of a period, in one snapshot. @param bounds of {@link boundsOf}. @param client as of `RecordStore.list`
 * @throws {AppError} validation_failed as {@link sumsText}; unavailable if it takes too long, or the WAL is too large
 */
export type SumOrders = (
  bounds: readonly string[],
  client?: ClientId,
) => Promise<JsonText<readonly OrderSum[]>>;

/** Maximum time in which a database sums up. */
export const SUM_MS = 30_000;

/** The sum of the interval with this index. */
export type IndexedSum = Omit<OrderSum, "from" | "to"> & { readonly at: number };

/** @returns the date in a zone. `Temporal` also knows offsets as zones */
function dateIn(zone: string, time: string): Temporal.PlainDate {
  try {
    if (/^[a-z][\w+/-]*$/i.test(zone))
      return Temporal.Instant.from(time).toZonedDateTimeISO(zone).toPlainDate();
  } catch {
    // It is unknown.
  }
  return failField("time_zone", "format", "must be a name of the IANA list, such as Europe/Berlin");
}

/**
 * A day begins with its first instant, and a month with that of its first day.
 * @returns the beginnings of the intervals, and the end of the last one
 * @throws {AppError} validation_failed if there are too many, or the zone is unknown
 */
export function boundsOf({ created_from, created_to, interval, time_zone }: SumsQuery): string[] {
  const max = maxIntervals[interval];
  const endMs = Date.parse(created_to);
  const date = dateIn(time_zone, created_from);
  const first = interval === "month" ? date.with({ day: 1 }) : date;
  const begins = [Date.parse(created_from)];
  for (let count = 1; ; count += 1) {
    const next = first.add({ [`${interval}s`]: count });
    const beginMs = next.toZonedDateTime(time_zone).epochMilliseconds;
    if (beginMs >= endMs) break;
    // Not of a date that the zone has skipped, nor of one that had begun before the clock was set back to the day before.
    if (beginMs > (begins.at(-1) ?? 0)) begins.push(beginMs);
    if (begins.length <= max) continue;
    const problem = `must be earlier: at most ${max} intervals by ${interval}`;
    failField("created_to", "length", problem, { min: 1, max });
  }
  return [...begins, endMs].map((ms) => new Date(ms).toISOString());
}

function compareSums(one: IndexedSum, other: IndexedSum): number {
  const rank = ({ status }: IndexedSum) => orderStatuses.indexOf(status);
  const isAfter = Number(one.currency > other.currency) - Number(one.currency < other.currency);
  return one.at - other.at || isAfter || rank(one) - rank(other);
}

/** @param sums in any order. @throws {AppError} validation_failed if one exceeds 2^53 − 1, or the text 4 MiB */
export function sumsText(bounds: readonly string[], sums: readonly IndexedSum[]) {
  const max = Number.MAX_SAFE_INTEGER;
  const rows = sums.toSorted(compareSums).map(({ at, ...sum }) => {
    if (sum.total > max || sum.refunded > max)
      failField("interval", "range", `must be shorter: a sum would exceed ${max}`, { min: 0, max });
    return { from: bounds[at] ?? "", to: bounds[at + 1] ?? "", ...sum };
  });
  const text = jsonText<readonly OrderSum[]>(rows);
  if (Buffer.byteLength(text) > MAX_PAGE_BYTES)
    failField("created_to", "length", "must be earlier: the response would exceed 4 MiB", {
      min: 0,
      max: MAX_PAGE_BYTES,
    });
  return text;
}
