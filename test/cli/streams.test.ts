import { expect, test } from "bun:test";
import { closeSync, constants, existsSync, openSync, readdirSync } from "node:fs";
import { writeOutput } from "../../src/cli/files/streams.ts";
import { makeDirectory } from "../support/directory.ts";
import { runProgram } from "../support/program.ts";
import { failed, makeHarness } from "./harness.ts";

test("import names stdin when it is a directory", async () => {
  using world = makeHarness();
  const outcome = await world.shell('"$@" import users <.');
  expect(outcome).toEqual(failed("Cannot read stdin: it is a directory"));
});

test("writeOutput writes everything when the pipe is full and its reader slow", async () => {
  using directory = makeDirectory();
  const [pipe, text] = [directory.at("pipe"), "ä😀".repeat(100_000)];
  Bun.spawnSync(["mkfifo", pipe]);
  // Opened for reading and writing, the pipe needs no other reader; non-blocking, a write of too much fails.
  const descriptor = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  const slow = 'exec < "$0"; echo open; sleep 0.1; cat > "$0.read"';
  const reader = Bun.spawn(["sh", "-c", slow, pipe], { stdout: "pipe" });
  await reader.stdout.getReader().read();
  try {
    writeOutput("the pipe", descriptor, text);
  } finally {
    closeSync(descriptor);
  }
  await reader.exited;
  expect((await Bun.file(`${pipe}.read`).text()) === text).toBe(true);
});

test.if(existsSync("/dev/fd"))(
  "openOutput writes into a pipe when its path has no real path",
  async () => {
    using directory = makeDirectory();
    // For example `/dev/stdout` when stdout is a pipe.
    const main = `${import.meta.dir}/../../src/cli/files/streams.ts`;
    const code = `
      import { openOutput } from ${JSON.stringify(main)};
      using output = openOutput("/dev/stdout", false, "");
      output.write("records");
      output.finish();
    `;
    await Bun.write(directory.at("pipe.ts"), code);
    // The shell creates a pipe. Bun would create a socket.
    const command = `"${process.execPath}" pipe.ts | cat`;
    const before = readdirSync(directory.path);
    const { stdout } = await runProgram(["sh", "-c", command], { cwd: directory.path });
    expect(stdout).toBe("records");
    expect(readdirSync(directory.path)).toEqual(before);
  },
);
