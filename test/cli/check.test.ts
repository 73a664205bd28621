import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { makeHarness } from "./harness.ts";

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

test("commands reject an empty file, and leave it empty", async () => {
  using world = makeHarness();
  await Bun.write(world.path, "");
  for (const args of [["check"], ["export", "users"], ["token", "list"], ["backup", "copy.db"]]) {
    const { code, stderr } = await world.run(...args);
    expect([code, stderr]).toEqual([1, `Cannot open ${world.path}: the database is empty\n`]);
    expect(Bun.file(world.path).size).toBe(0);
  }
});
