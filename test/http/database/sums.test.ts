// Sums of orders. That they add up is a rule of the model; where days begin is in test/domain/sums.test.ts.
import { expect, test } from "bun:test";
import { withStore } from "../../support/open-store.ts";
import { expectError, newUser } from "../make.ts";
import { startSharedServer } from "../server.ts";

const server = await startSharedServer();
const { id: buyer } = await newUser(server);
const largest = Number.MAX_SAFE_INTEGER;

type Placed = readonly [time: string, status: string, total: number, refunded?: number];

/** Imports orders, which have times. Each test has those of other years. */
async function place(...placed: readonly Placed[]): Promise<void> {
  const lines = placed.map(([createdAt, status, total, refunded = 0]) => {
    const items = [{ sku: "A", quantity: 1, unit_price: total }];
    const fields = { user_id: buyer, currency: "EUR", status, items, total, refunded };
    return { ...fields, created_at: createdAt, reference: crypto.randomUUID() };
  });
  const results = await withStore(server.database, ({ bulk }) =>
    bulk.orders.import(lines as never),
  );
  expect(new Set(results.map(({ outcome }) => outcome))).toEqual(new Set(["created"]));
}

const get = (query: string) => server.call("GET", `/orders/sums?${query}`);

async function sums(from: string, to: string, more = ""): Promise<unknown[][]> {
  const { status, text, json } = await get(`created_from=${from}&created_to=${to}${more}`);
  expect([status, text]).toEqual([200, JSON.stringify({ data: json?.data, error: null })]);
  return json.data.map(Object.values);
}

test("GET /orders/sums reads times with an offset, and rounds up what is below a millisecond", async () => {
  await place(
    ["2021-03-14T09:59:59.999Z", "paid", 1],
    ["2021-03-14T10:00:00.000Z", "paid", 10],
    ["2021-03-15T10:29:59.999Z", "paid", 100],
    ["2021-03-15T10:30:00.000Z", "paid", 1000],
  );
  const times = ["2021-03-14T11:00:00%2B01:00", "2021-03-15T10:29:59.999000001Z"] as const;
  const cut = ["2021-03-14T10:00:00.000Z", "2021-03-15T10:30:00.000Z"];
  const inMonth = [[...cut, "EUR", "paid", 2, 110, 0]];
  expect(await sums(...times, "&time_zone=Europe/Berlin&interval=month")).toEqual(inMonth);
  expect(await sums("9999-12-31T00:00:00Z", "9999-12-31T23:59:59.9999Z")).toEqual([]);
});

test("GET /orders/sums asks for shorter intervals when a sum exceeds 2^53 − 1", async () => {
  await place(
    ["2023-05-01T00:00:00.000Z", "paid", largest - 1, largest - 2],
    ["2023-05-02T00:00:00.000Z", "paid", 1, 1],
    ["2023-05-02T01:00:00.000Z", "paid", largest],
    ["2023-05-02T02:00:00.000Z", "pending", largest],
  );
  const month = (to: string) => ["2023-05-01T00:00:00Z", to, "&interval=month"] as const;
  const [row] = await sums(...month("2023-05-02T01:00:00Z"));
  expect(row?.slice(4)).toEqual([2, largest, largest - 1]);
  const [from, to] = ["2023-05-01T00:00:00Z", "2023-06-01T00:00:00Z"];
  for (const interval of ["month", "day"])
    expectError(
      await get(`created_from=${from}&created_to=${to}&interval=${interval}`),
      400,
      `Validation failed: interval must be shorter: a sum would exceed ${largest}`,
    );
  expect(await sums("2023-05-02T01:00:00Z", to)).toHaveLength(2);
});

const year = "created_from=2020-01-01T00:00:00Z&created_to=2021-01-01T00:00:00";
test.each([
  ["created_from is required", "created_to=2020-01-01T00:00:00Z"],
  ["created_to is required", "created_from=2020-01-01T00:00:00Z"],
  [
    "created_to must be after created_from",
    "created_from=2020-01-01T01:00:00%2B01:00&created_to=2020-01-01T00:00:00Z",
  ],
  ["interval must be one of day, month", `${year}Z&interval=week`],
  ["time_zone must be a name of the IANA list", `${year}Z&time_zone=%2B05:30`],
  ["created_to must be earlier: at most 366 intervals by day", `${year}.001Z`],
])("GET /orders/sums is a 400 with %s when the query is %s", async (problem, query) => {
  expectError(await get(query), 400, new RegExp(`^Validation failed: ${problem}`));
});
