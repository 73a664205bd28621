import { expect } from "bun:test";
import type { MaybePromise } from "../../src/base/maybe-promise.ts";
import type { OrderQuery } from "../../src/domain/order.ts";
import type { Page } from "../../src/domain/page.ts";
import { listed } from "../support/listed.ts";

/**
 * Expects a page, its total and its cursor to agree with a model: an array that is filtered and sliced.
 * @param ids all ids of the list, ascending
 */
export async function expectPage(
  list: (query: OrderQuery) => MaybePromise<Page>,
  ids: readonly number[],
  query: OrderQuery,
): Promise<void> {
  const { limit, offset, after, sort } = query;
  const sorted = sort === "-id" ? ids.toReversed() : ids;
  const isAfter = (id: number, cursor: number) => (sort === "-id" ? id < cursor : id > cursor);
  // Nothing precedes 0.
  const behind = after ? sorted.filter((id) => isAfter(id, after)) : sorted;
  const page = behind.slice(offset, offset + limit);
  const hasNext = after !== undefined && behind.length > limit;
  const { rows, total, nextAfter = null } = await listed(list(query));
  expect({ query, ids: rows.map(({ id }) => id), total, nextAfter }).toEqual({
    query,
    ids: page,
    total: ids.length,
    nextAfter: hasNext ? (page.at(-1) ?? null) : null,
  });
}
