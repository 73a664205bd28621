import { expect, test } from "bun:test";
import { boundsOf, type IndexedSum, type SumsQuery, sumsText } from "../../src/domain/sums.ts";
import { expectThrown } from "../support/expect-error.ts";

type Interval = SumsQuery["interval"];

/** @returns what is left of each time without seconds of 0 */
function bounds(
  interval: Interval,
  zone: string,
  from = "2026-01-01T00:00",
  to = "2026-01-02T00:00",
) {
  const times = { created_from: timeOf(from), created_to: timeOf(to) };
  const found = boundsOf({ ...times, interval, time_zone: zone });
  return found.map((time) => time.replace(/(:00)?\.000Z$/, ""));
}

const timeOf = (text: string) => new Date(`${text}Z`).toISOString();

/** When, the interval, the zone, and where intervals begin. */
const examples = `
  there is a leap day | day UTC | 2024-02-28T00:00 2024-02-29T00:00 2024-03-01T00:00
  the period is within a day | day UTC | 2024-02-28T01:00 2024-02-28T02:00
  a day has 23 hours | day Europe/Berlin | 2026-03-27T23:00 2026-03-28T23:00 2026-03-29T22:00
  a day has 25 hours | day Europe/Berlin | 2026-10-24T10:00 2026-10-24T22:00 2026-10-25T23:00 2026-10-26T10:00
  the clock skips midnight | day America/Santiago | 2026-09-05T12:00 2026-09-06T04:00 2026-09-07T03:00 2026-09-07T12:00
  the zone skips a date | day Pacific/Apia | 2011-12-29T12:00 2011-12-30T10:00 2011-12-31T10:00 2012-01-01T10:00 2012-01-01T12:00
  a day had begun before the clock was set back | day America/St_Johns | 2010-11-07T03:00 2010-11-08T03:30 2010-11-08T12:00
  the zone has another name today | day Asia/Calcutta | 2026-01-01T00:00 2026-01-01T18:30 2026-01-02T00:00
  the offset has seconds | day Africa/Monrovia | 1970-01-01T00:00 1970-01-01T00:44:30 1970-01-02T00:00
  the first month has a day | month UTC | 2024-01-31T00:00 2024-02-01T00:00 2024-03-01T00:00 2024-03-02T00:00
  months have different offsets | month America/New_York | 2026-03-01T05:00 2026-04-01T04:00 2026-05-01T04:00
  the year is the last one | month Pacific/Kiritimati | 9999-12-01T00:00 9999-12-31T10:00 9999-12-31T23:59:59.999Z
`;

test.each(examples.trim().split("\n"))("boundsOf returns where intervals begin when %s", (line) => {
  const [, given = "", expected = ""] = line.split(" | ");
  const [interval, zone = ""] = given.split(" ");
  const times = expected.split(" ");
  const found = bounds(interval as Interval, zone, times[0], times.at(-1)?.replace("Z", ""));
  expect(found).toEqual(times);
});

test("boundsOf rejects more than 366 days or 120 months, parts included", () => {
  expect(bounds("day", "UTC", "2024-01-01T00:00", "2025-01-01T00:00")).toHaveLength(367);
  expect(bounds("month", "UTC", "2020-01-31T00:00", "2029-12-01T00:00:00.001")).toHaveLength(121);
  for (const [interval, from, to] of [
    ["day", "2024-01-01T00:00", "2025-01-01T00:00:00.001"],
    ["day", "2024-01-01T12:00", "2025-01-01T12:00"],
    ["month", "2020-01-31T00:00", "2030-01-01T00:00:00.001"],
    ["month", "0000-01-01T00:00", "9999-01-01T00:00"],
  ] as const)
    expectThrown(
      () => bounds(interval, "UTC", from, to),
      "validation_failed",
      /created_to must be/,
    );
});

const zones =
  "+05:30 -03 GMT+5 Z Mars/Olympus 2020-01-01T00:00+01:00 2020-01-01T00Z[UTC] UTC[u-ca=iso8601]";
test.each(zones.split(" "))("boundsOf rejects the zone %s", (zone) => {
  expectThrown(
    () => bounds("day", zone),
    "validation_failed",
    /^Validation failed: time_zone must/,
  );
});

test("sumsText rejects sums that exceed 4 MiB", () => {
  const sum = { at: 0, currency: "EUR", status: "paid", orders: 1, total: 0, refunded: 0 } as const;
  const [from, to] = [timeOf("2026-01-01T00:00"), timeOf("2026-01-02T00:00")];
  const text = (count: number) => sumsText([from, to], Array<IndexedSum>(count).fill(sum));
  expect(text(31_000).length).toBeLessThan(2 ** 22);
  expectThrown(() => text(2 ** 15), "validation_failed", /would exceed 4 MiB$/);
});
