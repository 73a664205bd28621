import { expect, test } from "bun:test";
import { createStatementThread } from "../../src/sqlite/file/thread.ts";
import { makeWriter } from "./writer.ts";

test("run rejects waiting and new calls when the thread has ended", async () => {
  using made = makeWriter();
  const thread = createStatementThread(made.db.filename);
  await thread.run("select 1");
  // It has an end, because a thread that has begun a statement ends after it.
  const waiting = thread.run(
    "with recursive n (i) as (select 1 union all select i + 1 from n where i < 5000000) select max(i) from n",
  );
  thread.close();
  expect(await waiting.catch((error) => error.message)).toBe("the thread has ended");
  expect(await thread.run("select 1").catch((error) => error.message)).toBe("the thread has ended");
});
