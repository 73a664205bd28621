// What the calls do to connections is tested on the binary, in open-files.test.ts and reload.test.ts.
import { expect, test } from "bun:test";
import { closeIdle } from "../../src/cli/files/sockets.ts";
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

test.if(process.platform === "linux")(
  "closeIdle searches at most once a second when no connection is idle",
  async () => {
    const searchesMs: number[] = [];
    function pendingPorts() {
      searchesMs.push(performance.now());
      return new Set<number>();
    }
    {
      using _closing = closeIdle(1, 1, pendingPorts, Boolean, Boolean);
      while (searchesMs.length < 2) await Bun.sleep(10);
    }
    const [firstMs = 0, secondMs = 0] = searchesMs;
    expect(secondMs - firstMs).toBeGreaterThan(990);
  },
);
