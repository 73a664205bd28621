// What the calls do to connections is tested on the binary, in open-files.test.ts and reload.test.ts.
import { expect, test } from "bun:test";
import { closeUnanswered, limitOpenFiles } from "../../src/cli/sockets.ts";

test("limitOpenFiles changes nothing when the limit is lower already", () => {
  const limit = limitOpenFiles(2 ** 40);
  expect(limit).toBeGreaterThan(0);
  expect(limitOpenFiles(limit)).toBe(limit);
});

test.if(process.platform === "linux")(
  "closeUnanswered closes no other file when more than half of the files are open",
  async () => {
    const counted = Promise.withResolvers<void>();
    const reports: number[] = [];
    const pendingRequests = () => {
      counted.resolve();
      return 0;
    };
    // The standard streams and files of Bun, which are no connections.
    using _ = closeUnanswered(3, pendingRequests, (count) => reports.push(count));
    await counted.promise;
    await Bun.sleep(0);
    expect(reports).toEqual([]);
  },
);
