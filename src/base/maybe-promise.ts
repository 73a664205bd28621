/** A value that is available now or later. SQLite answers in the same turn of the event loop, PostgreSQL does not. */
export type MaybePromise<Value> = Value | Promise<Value>;

/** Continues in the same turn if the value is available: even a resolved promise makes Bun suspend the request. */
export function andThen<Value, Result>(
  value: MaybePromise<Value>,
  next: (value: Value) => MaybePromise<Result>,
): MaybePromise<Result> {
  return value instanceof Promise ? value.then(next) : next(value);
}
