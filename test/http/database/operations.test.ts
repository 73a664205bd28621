import { expect, test } from "bun:test";
import { exercise, operations } from "../exercise.ts";

/** A client cannot cause these. Other tests cover them. */
const NOT_AT_WILL = new Set([500, 503]);

test("every operation returns each documented status and each code of a conflict, and no others", async () => {
  // `call` throws if a response is not as documented.
  const seen = new Set(await exercise());
  const documented = operations().flatMap(({ operation, statuses, conflicts }) => [
    ...conflicts.map((code) => `${operation} 409 ${code}`),
    ...[...statuses]
      .filter((status) => status !== 409 && !NOT_AT_WILL.has(status))
      .map((status) => `${operation} ${status}`),
  ]);
  expect([...seen].sort()).toEqual(documented.sort());
});
