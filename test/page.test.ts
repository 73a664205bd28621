import { expect, test } from "bun:test";
import { pageOffsets } from "../src/page.ts";

const MAX = Number.MAX_SAFE_INTEGER;

/** limit, offset, total → prev, next, last; first is always 0. */
const pages: [number, number, number, number | null, number | null, number][] = [
  [50, 0, 0, null, null, 0],
  [50, 0, 1, null, null, 0],
  [50, 0, 50, null, null, 0],
  [50, 0, 51, null, 50, 50],
  [50, 50, 51, 0, null, 50],
  [2, 0, 5, null, 2, 4],
  [2, 2, 5, 0, 4, 4],
  [2, 4, 5, 2, null, 4],
  [2, 2, 4, 0, null, 2],
  // An offset between two pages.
  [2, 1, 5, 0, 3, 4],
  [2, 3, 5, 1, null, 4],
  [10, 3, 5, 0, null, 0],
  // Past the end: back to the last page.
  [2, 5, 5, 3, null, 4],
  [2, 6, 5, 4, null, 4],
  [2, 100, 5, 4, null, 4],
  [2, 100, 4, 2, null, 2],
  [2, 100, 0, 0, null, 0],
  [1000, MAX, 5, 0, null, 0],
  [1, 0, 2, null, 1, 1],
  [1000, MAX - 1, MAX, MAX - 1001, null, MAX - 991],
];

for (const [limit, offset, total, prev, next, last] of pages) {
  test(`pageOffsets returns the neighbouring pages when limit ${limit}, offset ${offset}, total ${total}`, () => {
    expect(pageOffsets({ limit, offset }, total)).toEqual({ first: 0, prev, next, last });
  });
}

test("pageOffsets covers every row once when next is followed", () => {
  for (let limit = 1; limit <= 6; limit += 1) {
    for (let total = 0; total <= 20; total += 1) {
      const offsets: number[] = [];
      for (let offset: number | null = 0; offset !== null; ) {
        offsets.push(offset);
        offset = pageOffsets({ limit, offset }, total).next;
      }
      expect(offsets).toEqual(
        Array.from({ length: Math.max(1, Math.ceil(total / limit)) }, (_, at) => at * limit),
      );
      expect(pageOffsets({ limit, offset: 0 }, total).last).toBe(offsets.at(-1) ?? 0);
    }
  }
});
