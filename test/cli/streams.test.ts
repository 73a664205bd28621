// Standard streams: pipes whose readers are slow or gone, and a real terminal, where stdout and stderr are mixed.
import { expect, test as inTurn } from "bun:test";
import { closeSync, constants, existsSync, openSync, readdirSync } from "node:fs";
import { writeOutput } from "../../src/cli/system/streams.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { failed, makeHarness, parsedLines } from "./harness.ts";

// Most tests only wait for something.
const test = inTurn.concurrent;

test("export exits with 141 on a closed pipe", async () => {
  using world = makeHarness();
  await fillDatabase(world.path, 100, 5000);
  const line = `"$@" export orders | head -1 >/dev/null; exit "\${PIPESTATUS[0]}"`;
  expect(await world.shell(line)).toEqual({ code: 141, stdout: "", stderr: "" });
});

test("changes --follow continues while the reader of a full pipe is slow, and ends without a message at a signal", async () => {
  using world = makeHarness();
  await fillDatabase(world.path, 100, 3000);
  // The reader sends the signal when it has read the last change, and writes no more than that one.
  const following = `sh -c 'echo $$ >"$0"; exec "$@" changes --follow' "$PIDFILE" "$@"`;
  const reading = `sleep 1; sed -n '/^{"id":3100,/{p;q}'; kill "$(cat "$PIDFILE")"; cat`;
  const line = `PIDFILE='${world.at("pid")}'; ${following} | { ${reading}; }; exit "\${PIPESTATUS[0]}"`;
  const { code, stdout, stderr } = await world.shell(line);
  expect([code, stderr]).toEqual([0, ""]);
  expect(JSON.parse(stdout)).toMatchObject({ id: 3_100 });
});

test("commands name stdin when it is a directory, and fail when stdout is full", async () => {
  using world = makeHarness();
  const outcome = await world.shell('"$@" import users <.');
  expect(outcome).toEqual(failed("Cannot read stdin: it is a directory"));
  const { code, stderr } = await world.shell('"$@" token create ci >/dev/full');
  expect(code).toBe(1);
  expect(stderr).toEndWith("Cannot write the output: the disk is full\n");
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
  "export --output writes into a pipe without a real path",
  async () => {
    using world = makeHarness();
    await fillDatabase(world.path, 2);
    // The shell creates a pipe. Bun would create a socket.
    const { stdout } = await world.shell('"$@" export users --output /dev/stdout | cat');
    expect(parsedLines(stdout)).toHaveLength(2);
    expect(readdirSync(world.at("."))).toEqual(["data"]);
  },
);

test("serve prints a welcome with the token, a curl command and the reference on the first start", async () => {
  using directory = makeDirectory();
  let screen = "";
  const decoder = new TextDecoder();
  const args = ["serve", "--port", "0", "--database-url", directory.at("new.db")];
  const child = Bun.spawn([process.execPath, `${import.meta.dir}/../../src/main.ts`, ...args], {
    env: { TERM: "xterm" },
    terminal: {
      cols: 100,
      rows: 40,
      data(_, bytes) {
        screen += decoder.decode(bytes, { stream: true });
      },
    },
  });
  async function shown(pattern: RegExp): Promise<string> {
    while (!pattern.test(screen)) await Bun.sleep(5);
    return pattern.exec(screen)?.[1] ?? "";
  }
  const url = await shown(/API reference: +(http:\S+)\/v1.*Create another token/s);
  await fetch(`${url}/nope`);
  // On Ctrl-C, a terminal discards output that has not been read yet.
  await shown(/\/api\/nope/);
  child.terminal?.write("\u0003");
  expect(await child.exited).toBe(0);
  // The last output can arrive after the exit.
  for (let length = -1; length !== screen.length; await Bun.sleep(50)) length = screen.length;
  child.terminal?.close();
  expect(screen).toMatch(/\r\n[\d:]{8} GET \/api\/nope 401 /);
  expect(screen).toMatch(/\r\n {2}uat_\w{36}\r\n/);
  expect(screen).toMatch(/token create NAME --database-url \S+new\.db\r\n/);
});
