// What the calls do to connections is tested on the binary, in open-files.test.ts and reload.test.ts.
import { expect, test } from "bun:test";
import { closeIdle } from "../../src/cli/system/sockets.ts";
import { stopTime } from "../support/fake-time.ts";
import { runProgram } from "../support/program.ts";

const onLinux = test.if(process.platform === "linux");

onLinux("limitOpenFiles lowers the limit, and does not raise it again", async () => {
  const path = `${import.meta.dir}/../../src/cli/system/sockets.ts`;
  const script = `import { limitOpenFiles } from "${path}";
    console.log(limitOpenFiles(500), limitOpenFiles(1000));`;
  const { stdout } = await runProgram([process.execPath, "-e", script]);
  expect(stdout).toBe("500 500\n");
});

onLinux("closeIdle searches at most once a second when no connection is idle", async () => {
  using time = stopTime();
  let searches = 0;
  const search = () => new Set([++searches]);
  using _closing = closeIdle(1, 1, search, Boolean, Boolean);
  await time.pass(1050);
  expect(searches).toBe(1);
  await time.pass(1000);
  expect(searches).toBe(2);
});
