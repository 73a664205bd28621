/**
 * Makes a value when it is needed: statements that are rarely used, or of a table that a database with an older schema,
 * which a command may read, does not have.
 */
export function lazily<Value>(make: () => Value): () => Value {
  let made: Value | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
