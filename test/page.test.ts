import { expect, test } from "bun:test";
import { pageOffsets } from "../src/page.ts";

const MAX = Number.MAX_SAFE_INTEGER;

const pages = [
  { limit: 50, offset: 0, total: 0, prev: null, next: null, last: 0 },
  { limit: 50, offset: 0, total: 50, prev: null, next: null, last: 0 },
  { limit: 50, offset: 0, total: 51, prev: null, next: 50, last: 50 },
  { limit: 50, offset: 50, total: 51, prev: 0, next: null, last: 50 },
  // An offset between two pages.
  { limit: 2, offset: 1, total: 5, prev: 0, next: 3, last: 4 },
  { limit: 2, offset: 3, total: 5, prev: 1, next: null, last: 4 },
  { limit: 10, offset: 3, total: 5, prev: 0, next: null, last: 0 },
  // Past the end: back to the last page.
  { limit: 2, offset: 5, total: 5, prev: 3, next: null, last: 4 },
  { limit: 2, offset: 100, total: 5, prev: 4, next: null, last: 4 },
  { limit: 2, offset: 100, total: 4, prev: 2, next: null, last: 2 },
  { limit: 2, offset: 100, total: 0, prev: 0, next: null, last: 0 },
  { limit: 1000, offset: MAX - 1, total: MAX, prev: MAX - 1001, next: null, last: MAX - 991 },
];

test.each(pages)(
  "pageOffsets returns the neighbouring pages when limit $limit, offset $offset, total $total",
  ({ limit, offset, total, ...neighbours }) => {
    expect(pageOffsets({ limit, offset }, total)).toEqual(neighbours);
  },
);

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
