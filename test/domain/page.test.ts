import { expect, test } from "bun:test";
import { joinRecords, MAX_PAGE_BYTES } from "../../src/domain/page.ts";
import { expectThrown } from "../support/expect-error.ts";

/** @returns records of 64 KiB, three of which have one character that takes three bytes. @param last of the last one */
function rowsOf(count: number, last = 2 ** 16) {
  const json = (bytes: number) => `"漢${"x".repeat(bytes - 5)}"`;
  return Array.from({ length: count }, (_, at) => ({
    id: at + 1,
    json: json(at === count - 1 ? last : 2 ** 16),
  }));
}

test.each([50, 1000])(
  "joinRecords accepts 4 MiB and no byte more when the limit is %i",
  (limit) => {
    // 63 records with their commas leave this much to the last one.
    const rest = MAX_PAGE_BYTES - 63 * (2 ** 16 + 1);
    const rows = rowsOf(64, rest).slice(-limit);
    const records = rows.map(({ json }) => json).join(",");
    expect(joinRecords(rows, limit)).toEqual({ records, nextAfter: null });
    const [id, json] = [1, "x".repeat(MAX_PAGE_BYTES)];
    expect(joinRecords([{ id, json }], limit).records === json).toBe(true);
    if (limit < 64) return;
    expect(Buffer.byteLength(records)).toBe(MAX_PAGE_BYTES);
    const problem = "must be at most 50 here, since the page would exceed 4 MiB";
    const error = expectThrown(() => joinRecords(rowsOf(64, rest + 1), limit), "validation_failed");
    expect(error).toMatchObject({
      message: `Validation failed: limit ${problem}`,
      problems: [{ field: "limit", code: "range", problem, min: 1, max: 50 }],
      allowed: { limit: 50 },
    });
  },
);

test("joinRecords reads one row more than the limit, and no further", () => {
  const read: number[] = [];
  function* rows() {
    for (const row of rowsOf(9)) {
      read.push(row.id);
      yield row;
    }
  }
  expect(joinRecords(rows(), 2)).toMatchObject({ nextAfter: 2 });
  expect(read).toEqual([1, 2, 3]);
});
