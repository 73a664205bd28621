import { expect, test } from "bun:test";
import { createThread } from "../../src/sqlite/file/thread.ts";
import { makeDirectory } from "../support/directory.ts";
import { makeWriter } from "./writer.ts";

test("run returns the message when a statement fails, and works afterwards", async () => {
  using made = makeWriter();
  const thread = createThread(made.db.filename);
  expect(await thread.run("insert into nowhere values (?)", "a")).toBe("no such table: nowhere");
  expect(await thread.run("insert into t (n) values (?)", "7")).toBeNull();
  expect(made.visible()).toEqual([7]);
  thread.close();
});

test("run creates no database when there is none", async () => {
  using directory = makeDirectory();
  const path = directory.at("none.db");
  const thread = createThread(path);
  expect(await thread.run("select 1")).toContain("unable to open");
  expect(await Bun.file(path).exists()).toBe(false);
  thread.close();
});

test("run rejects waiting and new calls when the thread has ended", async () => {
  using made = makeWriter();
  const thread = createThread(made.db.filename);
  await thread.run("select 1");
  // It has an end, because a thread that has begun a statement ends after it.
  const waiting = thread.run(
    "with recursive n (i) as (select 1 union all select i + 1 from n where i < 5000000) select max(i) from n",
  );
  thread.close();
  expect(await waiting.catch((error) => error.message)).toBe("the thread has ended");
  expect(await thread.run("select 1").catch((error) => error.message)).toBe("the thread has ended");
});
