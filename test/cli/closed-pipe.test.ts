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

test("changes --follow exits with 141 when its reader closes the pipe, also if there is no further change", async () => {
  using directory = makeDirectory();
  const env = { DATABASE_URL: directory.at("a.db"), PATH: Bun.env["PATH"] };
  const following = `${program} changes --follow | head -1; exit "\${PIPESTATUS[0]}"`;
  const command = `${program} seed --orders 1 2>/dev/null && ${following}`;
  const { code, stdout, stderr } = await runProgram(["bash", "-c", command], { env });
  expect([code, stderr]).toEqual([141, ""]);
  expect(stdout).toMatch(/^{"id":1,.*}\n$/);
});

test("changes --follow continues while the reader of a full pipe is slow", async () => {
  using directory = makeDirectory();
  const env = { DATABASE_URL: directory.at("a.db"), PATH: Bun.env["PATH"] };
  const following = `timeout -s INT 3 ${program} changes --follow | { sleep 1; tail -1; }`;
  const command = `${program} seed --orders 3000 2>/dev/null && ${following}`;
  const { stdout, stderr } = await runProgram(["bash", "-c", command], { env });
  expect(stderr).toBe("");
  expect(JSON.parse(stdout)).toMatchObject({ id: 3_100 });
});
