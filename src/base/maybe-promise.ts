/** A value that is available now or later. SQLite answers in the same turn of the event loop, PostgreSQL does not. */
export type MaybePromise<Value> = Value | Promise<Value>;

/**
 * Continues with a value, in the same turn if it is available. Even a resolved promise makes Bun suspend the request.
 * @throws what `next` throws, unless the value is a promise: then the result rejects
 */
export function andThen<Value, Result>(
  value: MaybePromise<Value>,
  next: (value: Value) => MaybePromise<Result>,
): MaybePromise<Result> {
  return value instanceof Promise ? value.then(next) : next(value);
}
