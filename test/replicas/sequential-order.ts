/**
 * Linearizability: a search for an order in which the model allows the responses to concurrent requests.
 * @see https://cs.brown.edu/~mph/HerlihyW90/p463-herlihy.pdf
 */
import { type Exchange, type Model, nothing, step } from "./model.ts";

/**
 * Applies the exchanges to the model in an order that it allows. An exchange that ended before another started comes
 * before it.
 * @returns none if there is such an order; otherwise those that remain after the longest order found
 */
export function applyInSomeOrder(
  model: Model,
  exchanges: readonly Exchange[],
): readonly Exchange[] {
  let fewest = exchanges;
  const failed = new Set<string>();

  function search(remaining: readonly Exchange[]): boolean {
    if (remaining.length === 0) return true;
    // What remains determines the state, because the responses have the versions.
    const signature = remaining.map(({ started }) => started).join();
    if (failed.has(signature)) return false;
    if (remaining.length < fewest.length) fewest = remaining;
    const without = (one: Exchange) => remaining.filter((other) => other !== one);
    const firstEnd = Math.min(...remaining.map(({ ended }) => ended));
    const changes: Exchange[] = [];
    for (const exchange of remaining) {
      if (exchange.started > firstEnd) continue;
      const undo = step(model, exchange);
      // It can come first in every order, because it changes nothing.
      if (undo === nothing) return search(without(exchange));
      if (undo === null) continue;
      undo();
      changes.push(exchange);
    }
    for (const exchange of changes) {
      const undo = step(model, exchange);
      if (search(without(exchange))) return true;
      undo?.();
    }
    failed.add(signature);
    return false;
  }

  return search(exchanges) ? [] : fewest;
}
