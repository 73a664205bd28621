// The program on a real terminal, where stdout and stderr are mixed.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { makeDirectory } from "../support/directory.ts";

const main = `${import.meta.dir}/../../src/main.ts`;
const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());

/** Runs the program with a terminal as stdin, stdout and stderr. @param onData may send a signal */
async function runOnTerminal(
  args: readonly string[],
  onData: (screen: string, child: Bun.Subprocess) => void = () => {},
) {
  let screen = "";
  const decoder = new TextDecoder();
  const child = Bun.spawn([process.execPath, main, ...args], {
    env: { DATABASE_URL: directory.at("a.db"), TERM: "xterm" },
    terminal: {
      cols: 100,
      rows: 40,
      data(_terminal, bytes) {
        screen += decoder.decode(bytes, { stream: true });
        onData(screen, child);
      },
    },
  });
  const code = await child.exited;
  // The last output can arrive after the exit.
  for (let length = -1; length !== screen.length; await Bun.sleep(50)) length = screen.length;
  child.terminal?.close();
  return { code, screen };
}

/** Moves the cursor to the start of the line, and erases the line. */
const CLEARED = "\r\u001b[K";

beforeAll(async () => {
  const users = Array.from({ length: 3000 }, (_, n) => `{"email":"${n}@b.cd"}\n`).join("");
  await Bun.write(directory.at("users.ndjson"), users);
});

const commands: [string, RegExp][] = [
  ["import users users.ndjson", /^Imported 3,000 users \(0 unchanged, 0 rejected\)\r\n$/],
  ["export users --output out.csv", /^Exported 3,000 users to \S+out\.csv\r\n$/],
  [
    "backup b.db",
    /^Backed up 3,000 users, 0 orders and 0 tokens to \S+b\.db \(0\.\d MB, v.+\)\r\n$/,
  ],
  ["copy --to c.db", /^Copied \S+a\.db to \S+c\.db in \S+ s \(verified\): 3,000 users, .+\r\n$/],
];

for (const [command, result] of commands) {
  test(`${command} clears its progress bar when it prints the result`, async () => {
    const args = command.split(" ").map((word) => (/\./.test(word) ? directory.at(word) : word));
    const { code, screen } = await runOnTerminal(args);
    expect([code, screen]).toEqual([0, expect.stringContaining(" 100% | ")]);
    expect(screen.slice(screen.lastIndexOf(CLEARED) + CLEARED.length)).toMatch(result);
  });
}

test("export users draws no progress bar when it writes to the terminal", async () => {
  const { code, screen } = await runOnTerminal(["export", "users"]);
  const lines = screen.trimEnd().split("\r\n");
  expect([code, lines.length, lines.at(-1)]).toEqual([0, 3001, "Exported 3,000 users"]);
});

test("import users says that it reads from the terminal, and stops on Ctrl-C", async () => {
  let isSent = false;
  const { code, screen } = await runOnTerminal(["import", "users"], (shown, child) => {
    // On Ctrl-C, a terminal discards output that has not been read yet.
    if (isSent || !shown.endsWith("Ctrl-D to finish.\r\n")) return;
    isSent = true;
    child.terminal?.write("\u0003");
  });
  expect(code).toBe(1);
  expect(screen).toMatch(
    /^Reading users from the terminal: one JSON object per line\. Press Ctrl-D to finish\.\r\n(\^C)?Interrupted\r\n$/,
  );
});

test("serve prints a welcome with the token, a curl command and the reference on the first start", async () => {
  expect(existsSync(directory.at("new.db"))).toBe(false);
  const args = ["serve", "--port", "0", "--database-url", directory.at("new.db")];
  let isRequested = false;
  let isStopped = false;
  const { code, screen } = await runOnTerminal(args, (shown, child) => {
    const url = /API reference: +(http:\S+)\/v1/.exec(shown)?.[1];
    if (url === undefined || !shown.includes("Create another token")) return;
    if (!isRequested) void fetch(`${url}/nope`);
    isRequested = true;
    // On Ctrl-C, a terminal discards output that has not been read yet.
    if (isStopped || !shown.includes("/api/nope")) return;
    isStopped = true;
    child.terminal?.write("\u0003");
  });
  expect(code).toBe(0);
  // Dim time, method, path, yellow status.
  expect(screen.replaceAll("\u001b", "ESC")).toMatch(
    /ESC\[2m[\d:]{8}ESC\[0m GET \/api\/nope ESC\[33m401ESC\[0m /,
  );
  expect(screen).toMatch(/\r\n {2}uat_\w{36}\r\n/);
  expect(screen).toMatch(/\r\n {2}curl -H 'Authorization: Bearer uat_\w{36}' http:\/\/127/);
  expect(screen).toMatch(/token create NAME --database-url \S+new\.db\r\n/);
  expect(screen).toMatch(/API reference: +http:\/\/127\.0\.0\.1:\d+\/api\/v1\/docs\r\n/);
});
