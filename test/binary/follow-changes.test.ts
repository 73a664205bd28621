// `user-api changes --follow` in a pipe and under signals.
import { afterAll, describe, expect, test } from "bun:test";
import { makeDirectory } from "../directory.ts";
import { withStore } from "../open-store.ts";
import { binary, runProgram, startProgram } from "../program.ts";

const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());

async function makeUsers(path: string, count: number): Promise<void> {
  await withStore(path, async ({ bulk }) => {
    const users = Array.from({ length: count }, () => ({
      email: `${crypto.randomUUID()}@b.cd`,
      name: null,
      metadata: {},
    }));
    await bulk.users.import(users, false);
  });
}

describe.skipIf(binary === "")("changes --follow", () => {
  test("exits with 141 and no message when its reader has closed the pipe", async () => {
    const path = directory.at("pipe.db");
    await makeUsers(path, 5000);
    const script = '"$0" changes --follow | head -n 3; echo "$?"';
    const { code, stdout, stderr } = await runProgram(
      ["bash", "-c", `set -o pipefail; ${script}`, binary],
      {
        env: { DATABASE_URL: path, PATH: Bun.env["PATH"] },
      },
    );
    expect([code, stderr]).toEqual([0, ""]);
    const lines = stdout.trimEnd().split("\n");
    expect(lines.slice(0, 3).map((line) => JSON.parse(line).id)).toEqual([1, 2, 3]);
    expect(lines[3]).toBe("141");
  });

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    test(`ends without a message, and with whole lines, when ${signal} arrives`, async () => {
      const path = directory.at(`${signal}.db`);
      await makeUsers(path, 3);
      const program = startProgram([binary, "changes", "--follow"], {
        env: { DATABASE_URL: path },
      });
      while (!program.output().includes('"id":3,')) await Bun.sleep(5);
      await makeUsers(path, 100);
      while (!program.output().includes('"id":103,')) await Bun.sleep(5);
      program.kill(signal);
      const { code, stdout, stderr } = await program.ended;
      expect([code, stderr]).toEqual([0, ""]);
      expect(stdout).toEndWith("}\n");
    });
  }
});
