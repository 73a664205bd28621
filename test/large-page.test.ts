import { expect, test } from "bun:test";
import { createLargePages, type PageBuilder } from "../src/large-page.ts";
import { expectRejection } from "./expect-error.ts";
import { listed } from "./listed.ts";

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

test("build rejects a page and frees its memory when no buffer is left", async () => {
  const pages = createLargePages(2 ** 20);
  const work = async (builder: PageBuilder) => {
    builder.add([record(1, 600_000), record(2, 600_000)]);
    return built;
  };
  await expectRejection(pages.build(work), "unavailable");
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

test("build builds one page at a time, in the order of the requests", async () => {
  const pages = createLargePages(2 ** 22);
  const events: string[] = [];
  const build = (name: string) =>
    pages.build(async () => {
      events.push(`${name} begins`);
      await Bun.sleep(1);
      events.push(`${name} ends`);
      return built;
    });
  const failing = pages.build(() => Promise.reject(new Error("failed")));
  await Promise.allSettled([build("a"), failing, build("b")]);
  expect(events).toEqual(["a begins", "a ends", "b begins", "b ends"]);
});
