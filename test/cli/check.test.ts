import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { failed, makeHarness } from "./harness.ts";

test("check prints ok and exits with 0 when the database is intact, with or without a running server", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  const server = await world.serve();
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  await server.stop();
});

test("check prints the problem and exits with 1 when a total is wrong", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  {
    using db = new Database(world.path);
    db.run("insert into buckets values ('users', 0, 0, 1)");
  }
  expect(await world.run("check")).toEqual({
    code: 1,
    stdout: "the total of users is wrong in bucket 0 of level 0\n",
    stderr: `${world.path} is damaged: 1 problem found\n`,
  });
});

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
