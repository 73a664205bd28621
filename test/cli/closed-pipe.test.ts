// Only a real pipe shows what happens when its reader closes it.
import { expect, test } from "bun:test";
import { makeDirectory } from "../directory.ts";
import { runProgram } from "../program.ts";

const program = `"${process.execPath}" "${import.meta.dir}/../../src/main.ts"`;

test("export exits with 141 and prints nothing when its reader closes the pipe", async () => {
  using directory = makeDirectory();
  const env = { DATABASE_URL: directory.at("a.db"), PATH: Bun.env["PATH"] };
  const exporting = `${program} export orders | head -1 >/dev/null; exit "\${PIPESTATUS[0]}"`;
  const command = `${program} seed --orders 5000 2>/dev/null && ${exporting}`;
  const outcome = await runProgram(["bash", "-c", command], { env });
  expect(outcome).toEqual({ code: 141, stdout: "", stderr: "" });
});
