import { expect, test } from "bun:test";
import { pageLinks } from "../../src/http/output/bodies.ts";

const page = { total: 15_000, records: "", nextAfter: null, maxOffset: 10_000 };
const relations = (links: string) => links.match(/rel="\w+"/g)?.map((rel) => rel.slice(5, -1));

test("a page has no links to offsets that the list does not have, but to the next one at any id", () => {
  const at = (offset: number) => relations(pageLinks("/orders", { limit: 50, offset }, page));
  expect(at(0)).toEqual(["first", "next"]);
  expect(at(9_950)).toEqual(["first", "prev", "next"]);
  expect(at(10_000)).toEqual(["first", "prev"]);
  expect(at(20_000)).toEqual(["first"]);
  const byId = { ...page, nextAfter: 20_000 };
  const links = pageLinks("/orders", { limit: 50, offset: 0, after: 19_950 }, byId);
  expect(relations(links)).toEqual(["first", "next"]);
});
