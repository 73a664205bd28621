// Runs the script of docs/clients.md and the programs in docs/examples against a server whose lists have several pages, and which is busy at first.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { newToken } from "../src/token.ts";
import { makeHarness } from "./cli/harness.ts";
import { makeDirectory } from "./directory.ts";
import { runProgram } from "./program.ts";

const docs = `${import.meta.dir}/../docs`;

/** Three pages of the limit that the examples get here. */
const USERS = 25;
const LIMIT = 10;
const token = newToken();
const harness = makeHarness({ environment: { API_TOKEN: token } });
let url = "";
/** Requests that the proxy below has rejected with 503, by method. */
const rejected: Record<string, number> = {};

/** Rejects the first request of each method with 503, and passes all others on. */
const busyProxy = Bun.serve({
  port: 0,
  async fetch(request) {
    const { method } = request;
    rejected[method] ??= 0;
    if (rejected[method] === 0) {
      rejected[method] = 1;
      // A proxy in front of a server that restarts sends a 502 of its own.
      const status = method === "POST" ? 502 : 503;
      return new Response("<html>", { status, headers: { "retry-after": "0" } });
    }
    const { pathname, search } = new URL(request.url);
    const body = method === "GET" ? undefined : await request.text();
    return fetch(url + pathname + search, { method, headers: request.headers, body });
  },
});

let server: Awaited<ReturnType<typeof harness.serve>>;
beforeAll(async () => {
  await harness.run("seed", `--users=${USERS}`, "--orders=0");
  server = await harness.serve();
  ({ url } = server);
});
afterAll(async () => {
  await busyProxy.stop(true);
  await server.stop();
  harness[Symbol.dispose]();
});

async function call(path: string): Promise<any> {
  const headers = { authorization: `Bearer ${token}` };
  return (await fetch(`${url}/api/v1${path}`, { headers })).json();
}

/** Runs a program in a directory of its own. */
async function runExample(program: string, file: string, command: string) {
  const directory = makeDirectory();
  for (const method of Object.keys(rejected)) delete rejected[method];
  const source = program
    .replace("http://127.0.0.1:3000", busyProxy.url.origin)
    .replace("limit=1000", `limit=${LIMIT}`);
  await Bun.write(directory.at(file), source);
  const { code, stderr } = await runProgram([command, directory.at(file)], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], TOKEN: token },
  });
  expect([code, stderr]).toEqual([0, ""]);
  return directory;
}

async function runFile(file: string, command: string) {
  return runExample(await Bun.file(`${docs}/examples/${file}`).text(), file, command);
}

async function expectAllSeen(total: number): Promise<void> {
  expect((await call("/users?limit=1")).meta.total).toBe(total);
  for (const id of [1, LIMIT + 1, total]) {
    expect((await call(`/users/${id}`)).data).toMatchObject({ metadata: { seen: "yes" } });
  }
  expect(rejected).toMatchObject({ GET: 1, POST: 1, PATCH: 1 });
}

const TIMEOUT_MS = 60_000;

describe("examples of docs/clients.md", () => {
  test.skipIf(Bun.which("curl") === null || Bun.which("jq") === null)(
    "curl creates one user and reads all pages, even if the server is busy at first",
    async () => {
      const page = await Bun.file(`${docs}/clients.md`).text();
      const [, script = ""] = /^```sh\n(.*?)^```$/ms.exec(page) ?? [];
      using directory = await runExample(script, "client.sh", "sh");
      const created = await Bun.file(directory.at("user.json")).json();
      expect(created.data.email).toBe("dan@example.com");
      const users = Bun.JSONL.parse(await Bun.file(directory.at("users.ndjson")).text());
      const ids = users.map(({ id }: any) => id);
      expect(ids).toEqual(Array.from({ length: USERS + 1 }, (_, index) => index + 1));
    },
    TIMEOUT_MS,
  );

  test(
    "TypeScript creates a user and edits all, even if the server is busy at first",
    async () => {
      const before = (await call("/users?limit=1")).meta.total;
      using _directory = await runFile("client.mts", process.execPath);
      await expectAllSeen(before + 1);
    },
    TIMEOUT_MS,
  );

  test.skipIf(Bun.which("python3") === null)(
    "Python creates a user and edits all, even if the server is busy at first",
    async () => {
      const before = (await call("/users?limit=1")).meta.total;
      using _directory = await runFile("client.py", "python3");
      await expectAllSeen(before + 1);
    },
    TIMEOUT_MS,
  );
});
