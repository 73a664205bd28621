// Statements that requests share.
import { expect } from "bun:test";
import type { MaybePromise } from "../../src/base/maybe-promise.ts";
import { newUser, parsed } from "../contract/open.ts";
import { listed } from "../support/listed.ts";
import { recordStatements, test } from "./postgres-harness.ts";
import { serverError } from "./server-error.ts";

test("statements that requests share fail alone when one of them fails or takes too long", async (world) => {
  const store = await world.open();
  const ids = [1, 2, 3, 4, 5, 6];
  for (const _ of ids) await newUser(store);
  const { users } = recordStatements(world.connect(), async (_statement, values) => {
    const [id] = /\b[35]\b/.exec(JSON.stringify(values)) ?? [];
    if (id === "3") throw serverError("XX001", { message: "damaged on purpose" });
    if (id === "5") throw serverError("57014");
  });
  const outcomesOf = async (reads: readonly MaybePromise<unknown>[]) =>
    (await Promise.allSettled(reads)).map((result) =>
      result.status === "fulfilled" ? "read" : result.reason.message,
    );
  const [bad, late] = ["damaged on purpose", "the database is busy"];
  const expected = ["read", "read", bad, "read", late, "read"];
  expect(await outcomesOf(ids.map((id) => users.get(id)))).toEqual(expected);
  const readPage = (after: number) => users.list({ limit: 1, offset: 0, after });
  expect(await outcomesOf(ids.map(readPage))).toEqual(expected);
});

test("statements that requests share are sent once when many records, pages of a client or tokens are requested in one turn", async (world) => {
  const store = await world.open();
  const { users, tokens, sent } = recordStatements(world.connect(world.urlWith("max=1")));
  const made = await Promise.all(Array.from({ length: 30 }, () => newUser(store)));
  made.sort((one, other) => one.id - other.id);
  const ids = [...made.map(({ id }) => id), 99, 1, 2, 3];
  const found = await Promise.all(ids.map((id) => users.get(id)));
  expect(found.map((record) => parsed(record))).toEqual(ids.map((id) => made[id - 1] ?? null));
  expect(sent).toHaveLength(1);
  const afters = [1, 5, 29, 30];
  const pages = await Promise.all(
    afters.flatMap((after) =>
      ["a", "b"].map((client) => listed(users.list({ limit: 2, offset: 0, after }, client))),
    ),
  );
  const rowsOf = afters.map((after) => made.slice(after, after + 2));
  expect(pages.map(({ rows }) => rows)).toEqual(rowsOf.flatMap((rows) => [rows, rows]));
  // One of each client.
  expect(sent).toHaveLength(3);
  // A page that skips many rows, or has many, does not delay the others.
  const alone = [
    { limit: 2, offset: 0 },
    { limit: 2, offset: 5_000 },
    { limit: 51, offset: 0 },
  ];
  await Promise.all(alone.map((query) => users.list(query)));
  expect(sent).toHaveLength(6);
  // Tokens that no one has used before.
  await Promise.all(Array.from({ length: 500 }, (_, at) => tokens.find(`${at}`)));
  expect(sent).toHaveLength(7);
});
