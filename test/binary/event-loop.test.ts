// What could block the event loop: the log cannot be written, as its reader has stalled or exited, or the disk is full. Only a
// real pipe shows whether a write blocks.
import { expect } from "bun:test";
import { closeSync, constants, openSync } from "node:fs";
import { newToken } from "../../src/domain/token.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { binary, startProgram } from "../support/program.ts";
import { test } from "./on-binary.ts";

/** Makes log lines long, so that few requests fill the pipe and the buffer. */
const LONG_ID = "r".repeat(128);

/** A pipe that nothing reads. */
function makePipe(directory: TemporaryDirectory, name: string) {
  const path = directory.at(name);
  Bun.spawnSync(["mkfifo", path]);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writer = openSync(path, constants.O_WRONLY);
  let isRead = true;
  function closeReader(): void {
    if (isRead) closeSync(reader);
    isRead = false;
  }
  return {
    path,
    writer,
    closeReader,
    [Symbol.dispose]() {
      closeSync(writer);
      closeReader();
    },
  };
}

/** On a Unix socket: its log, which may be unreadable, does not have to say the port. */
async function serve(
  directory: TemporaryDirectory,
  stdout: number,
  stderr: number | "pipe" = "pipe",
) {
  const token = newToken();
  const unix = directory.at("socket");
  const env = { DATABASE_URL: directory.at("a.db"), HOST: unix, API_TOKEN: token };
  const child = Bun.spawn([binary, "serve"], { env, stdout, stderr });
  const url = "http://localhost/api/v1";
  const get = (path: string) => {
    const headers = { authorization: `Bearer ${token}`, "x-request-id": LONG_ID };
    return fetch(url + path, { unix, headers, signal: AbortSignal.timeout(30_000) });
  };
  while ((await get("/health").catch(() => null)) === null) {
    if (child.exitCode !== null) throw new Error(`It has exited with ${child.exitCode}`);
    await Bun.sleep(5);
  }
  return {
    child,
    get,
    stop() {
      child.kill("SIGTERM");
      return child.exited;
    },
  };
}

type Pipe = ReturnType<typeof makePipe>;
type Server = Awaited<ReturnType<typeof serve>>;

async function droppedBy({ get }: Server): Promise<number> {
  const text = await (await get("/metrics")).text();
  return Number(/^user_api_dropped_log_lines_total (\d+)$/m.exec(text)?.[1]);
}

async function fillLog(server: Server): Promise<void> {
  do {
    const responses = await Promise.all(Array.from({ length: 100 }, () => server.get("/health")));
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([200]));
  } while (!((await droppedBy(server)) > 0));
}

test("serve responds, and reports the lines it dropped, when its log is not read for a while", async () => {
  using directory = makeDirectory();
  using pipe = makePipe(directory, "log");
  const server = await serve(directory, pipe.writer);
  await fillLog(server);
  // These are read from files, by the same threads that write the log.
  expect((await server.get("/docs/swagger-ui.css")).status).toBe(200);
  expect((await (await server.get("/docs")).text()).length).toBeGreaterThan(1000);
  const dropped = await droppedBy(server);
  expect(dropped).toBeGreaterThan(0);

  const report = /"level":"warn","event":"log lines dropped","lines":(\d+)/;
  const reading = startProgram(["cat", pipe.path], { env: { PATH: Bun.env["PATH"] } });
  while (!report.test(reading.output())) await Bun.sleep(5);
  expect(await server.stop()).toBe(0);
  while (!reading.output().endsWith('"stopped"}\n')) await Bun.sleep(5);
  reading.kill("SIGTERM");
  const lines = reading.output().trimEnd().split("\n");
  const events = lines.map((line) => JSON.parse(line));
  expect(events.at(-1).event).toBe("stopped");
  const reported = events.filter(({ event }) => event === "log lines dropped");
  // The line of the request for the metrics itself may have been dropped after it.
  const sum = reported.reduce((total, { lines: count }) => total + count, 0);
  expect(sum).toBeWithin(dropped, dropped + 2);
});

test.each([
  // Like `serve 2>&1 | reader`.
  ["no one reads its log and stderr", (_pipe: Pipe, server: Server) => fillLog(server)],
  ["the reader of its log has closed the pipe", (pipe: Pipe) => pipe.closeReader()],
] as const)("serve exits with 0 on SIGTERM when %s", async (...row) => {
  const [, stopReading] = row;
  using directory = makeDirectory();
  using pipe = makePipe(directory, "log");
  const server = await serve(directory, pipe.writer, pipe.writer);
  await stopReading(pipe, server);
  expect((await server.get("/users")).status).toBe(200);
  expect(await server.stop()).toBe(0);
});

test("serve exits with 1 on SIGTERM when its log could not be written", async () => {
  using directory = makeDirectory();
  const full = openSync("/dev/full", "w");
  const server = await serve(directory, full);
  expect((await server.get("/users")).status).toBe(200);
  expect(await server.stop()).toBe(1);
  expect(await new Response(server.child.stderr as ReadableStream).text()).toBe(
    "Cannot write the output\n",
  );
  closeSync(full);
});
