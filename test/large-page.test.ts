import { expect, test } from "bun:test";
import { AppError } from "../src/error.ts";
import { createLargePages, type LargePages, type PageBuilder } from "../src/large-page.ts";
import type { Chunks, Page } from "../src/page.ts";
import { expectRejection } from "./expect-error.ts";
import { listed } from "./listed.ts";

const BUFFER_BYTES = 2 ** 18;
const built = { total: 2, nextAfter: null };
const record = (id: number, length: number) =>
  JSON.stringify({ id, text: "😀".repeat(length / 4) });

test("build returns the records, and holds their memory until they are read", async () => {
  const pages = createLargePages(2 ** 22);
  const records = [record(1, 300_000), record(2, 700_001)];
  const page = pages.build(async (builder) => {
    builder.add(records);
    return built;
  });
  await page;
  expect(pages.unsentBytes()).toBe(4 * 2 ** 18);
  expect((await listed(page)).rows).toEqual(records.map((text) => JSON.parse(text)));
  expect(pages.unsentBytes()).toBe(0);
});

/** Builds a page of one record. @param buffers how many it takes */
function buildOf(pages: LargePages, client: string, buffers: number): Promise<Page> {
  return pages.build(async (page) => {
    page.add(["x".repeat(buffers * BUFFER_BYTES)]);
    return built;
  }, client);
}

test("build accepts a page of any size when no other page is unsent", async () => {
  const pages = createLargePages(0);
  await buildOf(pages, "a", 3);
  expect(pages.unsentBytes()).toBe(3 * BUFFER_BYTES);
});

test("build rejects a page and frees its memory when the process reaches its limit", async () => {
  const pages = createLargePages(8 * BUFFER_BYTES);
  await buildOf(pages, "a", 2);
  await expectRejection(buildOf(pages, "b", 7), "unavailable", /too many large pages/);
  expect(pages.unsentBytes()).toBe(2 * BUFFER_BYTES);
  await buildOf(pages, "b", 6);
  expect(pages.unsentBytes()).toBe(8 * BUFFER_BYTES);
});

test("build rejects the second page of a client when both are more than half of the memory", async () => {
  const pages = createLargePages(8 * BUFFER_BYTES);
  const first = await buildOf(pages, "a", 2);
  await expectRejection(buildOf(pages, "a", 3), "unavailable");
  await buildOf(pages, "a", 2);
  await buildOf(pages, "b", 4);
  expect(pages.unsentBytes()).toBe(8 * BUFFER_BYTES);
  (first.records as Chunks)[Symbol.dispose]();
  expect(pages.unsentBytes()).toBe(6 * BUFFER_BYTES);
  await buildOf(pages, "a", 2);
});

test("build does not begin when not one buffer is left for the client", async () => {
  const pages = createLargePages(4 * BUFFER_BYTES);
  await buildOf(pages, "a", 2);
  await buildOf(pages, "b", 1);
  let begun = false;
  const page = pages.build(async () => {
    begun = true;
    return built;
  }, "a");
  await expectRejection(page, "unavailable");
  expect(begun).toBe(false);
});

test("build rejects a page in a later turn when there is no room", async () => {
  const pages = createLargePages(4 * BUFFER_BYTES);
  await buildOf(pages, "a", 2);
  await buildOf(pages, "b", 2);
  let isSameTurn = true;
  setImmediate(() => {
    isSameTurn = false;
  });
  await expectRejection(buildOf(pages, "a", 1), "unavailable");
  expect(isSameTurn).toBe(false);
});

test("reserve rejects a page when its memory is in use, and keeps only what the page takes", async () => {
  const pages = createLargePages(8 * BUFFER_BYTES);
  await buildOf(pages, "a", 2);
  const reserving = (bytes: number) =>
    pages.build(async (page) => {
      page.reserve(bytes);
      page.add([record(1, 100)]);
      expect(pages.unsentBytes()).toBe(8 * BUFFER_BYTES);
      return built;
    }, "b");
  await expectRejection(reserving(6 * BUFFER_BYTES + 1), "unavailable");
  expect(pages.unsentBytes()).toBe(2 * BUFFER_BYTES);
  await reserving(6 * BUFFER_BYTES);
  expect(pages.unsentBytes()).toBe(3 * BUFFER_BYTES);
});

test("reserve needs no more than the memory of the largest page", async () => {
  const pages = createLargePages(66 * BUFFER_BYTES);
  await buildOf(pages, "a", 2);
  const page = pages.build(async (builder) => {
    builder.reserve(2 ** 30);
    return built;
  }, "b");
  expect(await page).toMatchObject(built);
});

test("reserved memory is free again when the work fails", async () => {
  const pages = createLargePages(8 * BUFFER_BYTES);
  const page = pages.build(async (builder) => {
    builder.reserve(4 * BUFFER_BYTES);
    throw new AppError("unavailable", "the work has failed");
  });
  await expectRejection(page, "unavailable");
  expect(pages.unsentBytes()).toBe(0);
});

test("add accepts records of 16 MiB with their envelope, and names the number that fits when there are more", async () => {
  const pages = createLargePages(0);
  const most = 2 ** 24 - 256;
  const build = (last: number) =>
    pages.build(async (page) => {
      page.add(["1", "2", "x".repeat(last)]);
      return built;
    });
  const largest = await build(most - 4);
  (largest.records as Chunks)[Symbol.dispose]();
  await expectRejection(
    build(most - 3),
    "validation_failed",
    /limit must be at most 2 here, since the page would exceed 16 MiB$/,
  );
  expect(pages.unsentBytes()).toBe(0);
});

test("build allocates no buffer for records that are added after the page was rejected", async () => {
  const pages = createLargePages(2 ** 22);
  let late: PageBuilder | null = null;
  const failure = new Error("the work has failed");
  const page = pages.build(async (builder) => {
    late = builder;
    builder.add([record(1, 300_000)]);
    throw failure;
  });
  expect(await page.catch((error) => error)).toBe(failure);
  expect(() => late?.add([record(2, 300_000)])).toThrow("finished");
  expect(pages.unsentBytes()).toBe(0);
});

test("build allocates no buffer for records that are added after the page was built", async () => {
  const pages = createLargePages(2 ** 22);
  let late: PageBuilder | null = null;
  await pages.build(async (builder) => {
    late = builder;
    return built;
  });
  expect(() => late?.add([record(1, 300_000)])).toThrow("finished");
  expect(pages.unsentBytes()).toBe(0);
});

test("clear removes the records and frees their memory, so that a page can be built anew", async () => {
  const pages = createLargePages(0);
  const page = pages.build(async (builder) => {
    builder.add([record(1, 300_000), "x".repeat(2 ** 23)]);
    builder.clear();
    expect(pages.unsentBytes()).toBe(0);
    // Together with the removed records, these would be too many.
    builder.add([record(2, 300_000), record(3, 2 ** 23)]);
    return built;
  });
  expect((await listed(page)).rows).toMatchObject([{ id: 2 }, { id: 3 }]);
  expect(pages.unsentBytes()).toBe(0);
});

test("hold counts a body until it is released", async () => {
  const pages = createLargePages(4 * BUFFER_BYTES);
  const releaseFirst = pages.hold(BUFFER_BYTES, "a");
  const releaseSecond = pages.hold(BUFFER_BYTES, "a");
  expect(pages.unsentBytes()).toBe(2 * BUFFER_BYTES);
  expect(() => pages.hold(1, "a")).toThrow("too many large pages");
  await buildOf(pages, "b", 2);
  releaseFirst();
  expect(pages.unsentBytes()).toBe(3 * BUFFER_BYTES);
  releaseSecond();
  releaseSecond();
  expect(pages.unsentBytes()).toBe(2 * BUFFER_BYTES);
});

test("bodies of clients without a token count as those of one client", () => {
  const pages = createLargePages(4 * BUFFER_BYTES);
  pages.hold(BUFFER_BYTES);
  pages.hold(BUFFER_BYTES);
  expect(() => pages.hold(1)).toThrow("too many large pages");
  pages.hold(2 * BUFFER_BYTES, "a");
  expect(pages.unsentBytes()).toBe(4 * BUFFER_BYTES);
});

/** @returns the names of the pages, in the order in which they are built */
async function orderOf(names: readonly string[]): Promise<readonly string[]> {
  const pages = createLargePages(2 ** 22);
  const order: string[] = [];
  const builds = names.map((name) =>
    pages.build(async () => {
      order.push(name);
      await Bun.sleep(1);
      order.push(name);
      return built;
    }, name.charAt(0)),
  );
  await Promise.all(builds);
  return order;
}

test("build builds one page at a time, in the order of the requests of a client", async () => {
  expect(await orderOf(["a1", "a2", "a3"])).toEqual(["a1", "a1", "a2", "a2", "a3", "a3"]);
});

test("clients are served round robin when several have pages waiting", async () => {
  const order = await orderOf(["a1", "a2", "a3", "a4", "b1", "b2", "c1"]);
  expect(order.filter((_name, at) => at % 2 === 0)).toEqual([
    "a1",
    "b1",
    "c1",
    "a2",
    "b2",
    "a3",
    "a4",
  ]);
});
