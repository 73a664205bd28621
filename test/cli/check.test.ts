import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { makeHarness } from "./harness.ts";

test("`check` prints ok and ends with 0 when the database is sound, a server beside it or not", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  const server = await world.serve();
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
  await server.stop();
});

test("`check` says what is wrong and ends with 1 when a total is", async () => {
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

test("`check` makes nothing and ends with 1 when there is no database", async () => {
  using world = makeHarness();
  const { code, stderr } = await world.run("check");
  expect([code, stderr]).toEqual([1, `Cannot open ${world.path}: no such file\n`]);
  expect(await Bun.file(world.path).exists()).toBe(false);
});
