// The program on a real terminal, where stdout and stderr are mixed.
import { afterAll, expect, test } from "bun:test";
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
  expect(screen).toMatch(/\r\n[\d:]{8} GET \/api\/nope 401 /);
  expect(screen).toMatch(/\r\n {2}uat_\w{36}\r\n/);
  expect(screen).toMatch(/\r\n {2}curl -H 'Authorization: Bearer uat_\w{36}' http:\/\/127/);
  expect(screen).toMatch(/token create NAME --database-url \S+new\.db\r\n/);
  expect(screen).toMatch(/API reference: +http:\/\/127\.0\.0\.1:\d+\/api\/v1\/docs\r\n/);
});
