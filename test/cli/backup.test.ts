import { expect, test } from "bun:test";
import { makeWorld } from "./world.ts";

test("`backup` and `restore` say what they have done", async () => {
  using world = makeWorld();
  await world.run("token", "create", "a");
  const copy = `${world.path}.copy`;
  const made = await world.run("backup", copy);
  expect(made).toMatchObject({ code: 0, stderr: "" });
  expect(made.stdout).toMatch(/is a checked copy of 0 users, 0 orders and 1 tokens \(0\.1 MB\)\n$/);
  const restored = await world.run("restore", copy);
  expect(restored).toMatchObject({ code: 0, stderr: "" });
  expect(restored.stdout.split("\n")).toEqual([
    `${world.path} is restored: 0 users, 0 orders and 1 tokens (0.1 MB)`,
    `What it was before is ${world.path}.2026-11-20T18-57-03.120Z`,
    "",
  ]);
  expect((await world.run("token", "list")).stdout).toContain("\na ");
});

test("`backup` and `restore` end with 1 and one line when they cannot", async () => {
  using world = makeWorld();
  const missing = await world.run("backup", `${world.path}.copy`);
  expect([missing.code, missing.stderr]).toEqual([
    1,
    `Cannot open ${world.path}: there is no such file\n`,
  ]);
  const nothing = await world.run("restore", "/nowhere/backup.db");
  expect([nothing.code, nothing.stderr]).toEqual([
    1,
    "Cannot restore /nowhere/backup.db: there is no such file\n",
  ]);
});
