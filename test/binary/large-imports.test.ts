// Import and export of the binary when killed, and their memory, which test/cli cannot test.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { watchPeakMemory } from "../support/peak-memory.ts";
import { binary } from "../support/program.ts";

const USERS = 10_000;
/** 27 kB each, 135 MB as text. */
const WIDE_USERS = 5000;
/** The process needs 85 MB without any records. */
const MAX_BYTES = 250 * 2 ** 20;

function makeProgram() {
  const directory = makeDirectory();
  const environment = { DATABASE_URL: directory.at("a.db") };
  return {
    at: directory.at,
    start<const In extends Blob | "pipe">(args: readonly string[], stdin: In) {
      const io = { stdin, stdout: "pipe", stderr: "pipe" } as const;
      return Bun.spawn<In, "pipe", "pipe">([binary, ...args], {
        ...io,
        env: environment,
        cwd: directory.path,
      });
    },
    /** @returns the exit code, the output and the peak memory */
    async run(args: readonly string[], stdin = new Blob()) {
      const child = this.start(args, stdin);
      const output = [new Response(child.stdout).text(), new Response(child.stderr).text()];
      using memory = watchPeakMemory(child.pid);
      const [stdout = "", stderr = ""] = await Promise.all(output);
      const code = await child.exited;
      return { code, stdout, stderr, peakBytes: memory.bytes() };
    },
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

/** @returns the number of users in a database, which may not exist yet */
function countUsers(path: string): number {
  try {
    using db = new Database(path, { readonly: true });
    return db.query<{ total: number }, []>("select count(*) as total from users").get()?.total ?? 0;
  } catch {
    return 0;
  }
}

const line = (at: number, name = "A") => `{"email":"${at}@b.cd","name":"${name}"}\n`;
const users = () => new Blob(Array.from({ length: USERS }, (_, at) => line(at)));

test.skipIf(binary === "")(
  "import continues where it stopped when it was killed and is run again",
  async () => {
    using program = makeProgram();
    const child = program.start(["import", "users"], "pipe");
    const text = await users().slice(0, 200_000).bytes();
    child.stdin.write(text);
    await child.stdin.flush();
    while (countUsers(program.at("a.db")) === 0) await Bun.sleep(5);
    child.kill("SIGKILL");
    await child.exited;
    expect((await program.run(["check"])).stdout).toBe("ok\n");
    const { stderr } = await program.run(["import", "users"], users());
    const [, created = "", unchanged = ""] =
      /^Imported ([\d,]+) users? \(([\d,]+) unchanged, 0 rejected\)$/m.exec(stderr) ?? [];
    const numberOf = (text: string) => Number(text.replaceAll(",", ""));
    expect(numberOf(created) + numberOf(unchanged)).toBe(USERS);
    expect(numberOf(unchanged)).toBeGreaterThan(0);
    expect((await program.run(["check"])).stdout).toBe("ok\n");
    expect((await program.run(["export", "users"])).stderr).toBe(
      `Exported ${USERS.toLocaleString("en")} users\n`,
    );
  },
  60_000,
);

test.skipIf(binary === "")(
  "import and export need no more memory when the records are large and many",
  async () => {
    using program = makeProgram();
    const key = (at: number) => `${at}`.padStart(40, "k");
    const metadata = JSON.stringify(
      Object.fromEntries(Array.from({ length: 50 }, (_, at) => [key(at), "x".repeat(500)])),
    );
    const lines = Array.from(
      { length: WIDE_USERS },
      (_, at) => `{"email":"${at}@b.cd","metadata":${metadata}}\n`,
    );
    await Bun.write(program.at("a.ndjson"), lines);
    const commands = [
      "import users a.ndjson",
      "export users --output b.csv",
      ...(isLong ? ["export users --output b"] : []),
    ];
    for (const command of commands) {
      const { code, peakBytes } = await program.run(command.split(" "));
      expect(code, command).toEqual(0);
      expect(peakBytes).toBeGreaterThan(0);
      expect(peakBytes).toBeLessThan(MAX_BYTES);
    }
  },
  180_000,
);
