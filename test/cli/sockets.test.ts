// What the calls do to connections is tested on the binary, in open-files.test.ts and reload.test.ts.
import { expect, test } from "bun:test";
import { runProgram } from "../support/program.ts";

test.if(process.platform === "linux")(
  "limitOpenFiles lowers the limit, and does not raise it again",
  async () => {
    const path = `${import.meta.dir}/../../src/cli/files/sockets.ts`;
    const script = `import { limitOpenFiles } from "${path}";
      console.log(limitOpenFiles(500), limitOpenFiles(1000));`;
    const { stdout } = await runProgram([process.execPath, "-e", script]);
    expect(stdout).toBe("500 500\n");
  },
);
