import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { fillDatabase } from "../support/fill.ts";
import { exportOf, failed, makeHarness } from "./harness.ts";

test("check prints ok and exits with 0 when the database is intact, with or without a running server", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  const server = await world.serve();
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  await server.stop();
});

test.each(["users", "orders"])(
  "check prints the problem and exits with 1 when two %s have the same reference",
  async (table) => {
    using world = makeHarness();
    await fillDatabase(world.path, 2, 2);
    const [first, second] = await exportOf(world, table as "users" | "orders");
    const bytes = readFileSync(world.path, "latin1");
    writeFileSync(world.path, bytes.replaceAll(second.reference, first.reference), "latin1");
    const { code, stdout } = await world.run("check");
    expect([code, stdout]).toEqual([1, `non-unique entry in index ${table}_by_reference\n`]);
  },
);

const readers = ["check", "export users", "token list", "backup copy.db"];

test.each([
  ["the database is empty", "", readers],
  [
    "the file is not a SQLite database",
    "This is a text, and not a database.\n".repeat(100),
    [...readers, "token create a", "token revoke a"],
  ],
])("commands leave the file as it is when %s", async (problem, content, commands) => {
  using world = makeHarness();
  await Bun.write(world.path, content);
  for (const command of commands) {
    const outcome = await world.run(...command.split(" "));
    expect(outcome).toEqual(failed(`Cannot open ${world.path}: ${problem}`));
    expect(await Bun.file(world.path).text()).toBe(content);
  }
});
