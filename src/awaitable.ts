/**
 * Work that ends at once where it can. To wait even for nothing costs: a request that is answered in the turn
 * it came in is not set aside, and leaves half the garbage.
 */

/** What is there at once, or comes later: SQLite has read a row by the return, PostgreSQL has not. */
export type Awaitable<Value> = Value | Promise<Value>;

/** `next(await value)`, at once where the value is there: then `next` may throw at once, too. */
export function chain<Value, Result>(
  value: Awaitable<Value>,
  next: (value: Value) => Awaitable<Result>,
): Awaitable<Result> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** `try { return await work() } catch (error) { return failed(error) }`, at once where it can. */
export function recover<Value, Result>(
  work: () => Awaitable<Value>,
  failed: (error: unknown) => Result,
): Awaitable<Value | Result> {
  try {
    const value = work();
    return value instanceof Promise ? value.catch(failed) : value;
  } catch (error) {
    return failed(error);
  }
}
