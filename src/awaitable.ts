/**
 * Work that ends at once where it can: to wait costs, even for what is there already. Bun has to keep a request
 * that is not answered by the return, and each promise is garbage.
 */

/**
 * What is there at once, or comes later: SQLite has read a row by the return, PostgreSQL has not. What gives it
 * fails in the same two ways: it throws, or the promise is rejected.
 */
export type Awaitable<Value> = Value | Promise<Value>;

/** `next(await value)`, at once where the value is there. */
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
