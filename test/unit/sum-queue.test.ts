import { expect, test } from "bun:test";
import { createSumQueue } from "../../src/http/limits/sum-queue.ts";
import { expectRejection } from "../support/expect-error.ts";

test("sums run one after the other, one of each token, two wait, and a client that has disconnected is skipped", async () => {
  const queue = createSumQueue();
  const begun: string[] = [];
  const held = new Map<string, PromiseWithResolvers<string>>();
  const send = (client: string, signal = new AbortController().signal) =>
    queue(client, signal, () => {
      begun.push(client);
      return held.getOrInsert(client, Promise.withResolvers()).promise;
    });
  const first = send("a");
  const left = new AbortController();
  const skipped = expectRejection(send("b", left.signal), "unavailable", /disconnected$/);
  await expectRejection(send("a"), "unavailable", /another one of this token/);
  const third = send("c");
  await expectRejection(send("d"), "unavailable", /^too many sums/);
  await Bun.sleep(0);
  expect(begun).toEqual(["a"]);
  left.abort();
  held.get("a")?.reject(new Error("no"));
  await expect(first).rejects.toThrow("no");
  await skipped;
  await Bun.sleep(0);
  expect(begun).toEqual(["a", "c"]);
  const fourth = send("a");
  held.get("c")?.resolve("sum of c");
  expect(await third).toBe("sum of c");
  held.set("a", Promise.withResolvers());
  held.get("a")?.resolve("sum of a");
  expect(await fourth).toBe("sum of a");
});
