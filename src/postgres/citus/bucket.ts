/**
 * Orders are distributed by bucket, a number that follows from the user. A new order has the id
 * `number * 1024 + bucket`: its shard follows from its id, and that of all orders of a user from the id of the user.
 */

/** Never changed: it is part of every order id. */
export const BUCKETS = 1024;

/**
 * @param id of a user, or of an order that was not copied or imported with its own id
 * @returns 0 to 1023
 */
export function bucketOf(id: number): number {
  return id % BUCKETS;
}
