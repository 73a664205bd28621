import { expect, test } from "bun:test";
import { runSql } from "../sqlite/open-database.ts";
import { withStore } from "../support/open-store.ts";
import { failed, fill, makeHarness, makeHarnessWithDatabase, parsedLines } from "./harness.ts";

const time = "2026-11-20T18:57:03.120Z";

const idsOf = (stdout: string) => parsedLines(stdout).map(({ id }): number => id);

const upTo = (last: number, first = 1) =>
  Array.from({ length: last - first + 1 }, (_, at) => first + at);

test("changes prints every change on a line once, while a server runs, and with --follow later ones until a signal arrives", async () => {
  using world = makeHarness();
  const server = await world.serve();
  await fill(world, 451);
  const { code, stdout, stderr } = await world.run("changes");
  expect([code, stderr, idsOf(stdout)]).toEqual([0, "", upTo(451)]);
  const user = { type: "user.created", version: 1, status: null, token: "laptop", fields: null };
  expect(parsedLines(stdout)[1]).toEqual({ id: 2, ...user, record_id: 2, created_at: time });
  expect(idsOf((await world.run("changes", "--after", "451")).stdout)).toEqual([]);
  const following = world.begin("changes", "--after", "200", "--follow");
  await following.printed(/"id":451,/);
  await fill(world, 300);
  await following.printed(/"id":751,/);
  await fill(world, 1);
  await following.printed(/"id":752,/);
  const ended = await following.stop();
  expect([ended.code, ended.stderr, idsOf(ended.stdout)]).toEqual([0, "", upTo(752, 201)]);
  await server.stop();
});

test("changes begins with the oldest change that is kept, and fails when the next one is not, or another feed has begun", async () => {
  using world = makeHarnessWithDatabase();
  await fill(world, 4);
  await withStore(world.path, ({ changes }) => changes.deleteExpired(new Date(8.64e15)));
  expect(idsOf((await world.run("changes")).stdout)).toEqual([4]);
  expect(await world.run("changes", "--after", "2")).toEqual(
    failed("changes before 4 are no longer kept: synchronize again"),
  );
  expect(await world.run("changes", "--after", "5", "--follow")).toEqual(
    failed("there is no change 5, the last one is 4: synchronize again"),
  );
  const following = world.begin("changes", "--follow");
  await following.printed(/"id":4,/);
  runSql(world.path, "update feed set name = 'other'");
  await fill(world, 1);
  const { code, stderr } = await following.ended;
  expect(code).toBe(1);
  expect(stderr).toMatch(/^the feed \w+ has ended: synchronize again\n$/);
});
