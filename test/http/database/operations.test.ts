import { expect, test } from "bun:test";
import { undocumented } from "../documented.ts";
import { exercise, operations } from "../exercise.ts";

/** A client cannot cause these. Other tests cover them. */
const NOT_AT_WILL = new Set([500, 503]);

test("every operation returns each documented status, and no others", async () => {
  const calls = await exercise();
  for (const { method, path, response } of calls) {
    expect([method, path, undocumented(method, `/api/v1${path}`, response)]).toEqual([
      method,
      path,
      [],
    ]);
  }
  const seen = new Set(calls.map(({ operation, response }) => `${operation} ${response.status}`));
  const documented = operations().flatMap(({ operation, statuses }) =>
    [...statuses]
      .filter((status) => !NOT_AT_WILL.has(status))
      .map((status) => `${operation} ${status}`),
  );
  expect([...seen].sort()).toEqual(documented.sort());
});
