// Runs the programs in docs/examples that follow changes: each keeps a copy in step while records change, and when changes are gone.
import { afterAll, beforeAll, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { restoreSqlite } from "../../src/sqlite/restore.ts";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { withStore } from "../open-store.ts";
import { type Running, startProgram } from "../program.ts";
import { backUp } from "../sqlite/make-backup.ts";
import { newEmail, newOrder, newUser } from "./make.ts";
import { againstBinary, startServer } from "./server.ts";

const docs = `${import.meta.dir}/../../docs`;
const server = await startServer();
/**
 * Rejects every seventh request with 503, and passes the others on. While the server restarts, it returns a 502 without
 * a body, as Caddy does.
 */
let requests = 0;
const proxy = Bun.serve({
  port: 0,
  idleTimeout: 255,
  async fetch(request) {
    requests += 1;
    const { pathname, search } = new URL(request.url);
    if (requests % 7 === 0)
      return new Response("", { status: 503, headers: { "retry-after": "0" } });
    const { headers, signal } = request;
    return fetch(server.url + pathname + search, { headers, signal }).catch(
      () => new Response("", { status: 502 }),
    );
  },
});
// More users and orders than a page has.
beforeAll(async () => {
  if (againstBinary) for (let round = 0; round < 2; round += 1) await write();
});
afterAll(async () => {
  await proxy.stop(true);
  await server[Symbol.asyncDispose]();
});

/** Starts an example in a directory, in which it keeps its copy. */
async function startExample(directory: TemporaryDirectory, file: string, command: string) {
  const source = await Bun.file(`${docs}/examples/${file}`).text();
  await Bun.write(
    directory.at(file),
    source.replace("http://127.0.0.1:3000", proxy.url.origin).replaceAll("limit=50", "limit=5"),
  );
  return startProgram([command, directory.at(file)], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], TMPDIR: directory.path, TOKEN: server.readToken },
  });
}

/** @returns `null` if the copy is incomplete, or changes while it is read */
function copyOf(directory: TemporaryDirectory, table: string): unknown {
  const path = directory.at(`copy/${table}`);
  try {
    const records = readdirSync(path).map((name) =>
      JSON.parse(readFileSync(`${path}/${name}`, "utf8")),
    );
    return records.sort((left, right) => left.id - right.id);
  } catch {
    return null;
  }
}

/** Polls until the copy is equal to the database, or the test times out. */
async function untilInStep(directory: TemporaryDirectory, example: Running) {
  const [users, orders] = await Promise.all(
    ["users", "orders"].map(
      async (table) => (await server.call("GET", `/${table}?limit=1000`)).json.data,
    ),
  );
  while (
    !Bun.deepEquals([copyOf(directory, "users"), copyOf(directory, "orders")], [users, orders])
  ) {
    if (example.hasExited()) throw new Error((await example.ended).stderr);
    await Bun.sleep(50);
  }
}

/** Does not wait until its output ends: curl, which a shell has started, still has it open. */
async function kill(example: Running): Promise<void> {
  example.kill("SIGKILL");
  while (!example.hasExited()) await Bun.sleep(5);
}

/** Creates, changes and deletes records. */
async function write(): Promise<void> {
  const users = [
    await newUser(server),
    await newUser(server, { name: 'Änne \\ "A"\n' }),
    await newUser(server),
  ];
  const order = await newOrder(server, users[0].id);
  await newOrder(server, users[0].id);
  for (const status of ["paid", "shipped"])
    await server.call("PATCH", `/orders/${order.id}`, { body: { status } });
  await server.call("PUT", `/users/${users[1].id}`, { body: { email: newEmail() } });
  await server.call("DELETE", `/users/${users[2].id}`);
  // The id of a deleted user comes back, with an older version.
  const again = { ...users[2], email: newEmail(), version: 1 };
  await withStore(server.database, ({ bulk }) => bulk.users.import([again], false));
}

/** The slowest one first, because each adds records. */
const examples: [file: string, command: string][] = [
  ["follow.sh", "bash"],
  ["follow.mts", process.execPath],
  ["follow.py", "python3"],
];

for (const [file, command] of examples) {
  const isMissing =
    !againstBinary ||
    Bun.which(command) === null ||
    (command === "bash" && Bun.which("jq") === null);
  test.skipIf(isMissing)(
    `${file} keeps a copy in step`,
    async () => {
      using directory = makeDirectory();
      const backup = directory.at("backup.db");
      await write();
      let example = await startExample(directory, file, command);
      try {
        await untilInStep(directory, example);
        await write();
        await untilInStep(directory, example);
        // It is killed, and continues where it was.
        await kill(example);
        await write();
        example = await startExample(directory, file, command);
        await untilInStep(directory, example);
        // Changes expire while it is not running.
        await kill(example);
        await write();
        await write();
        await withStore(server.database, async (store) => {
          await store.changes.deleteExpired(new Date(8.64e15));
        });
        await backUp(server.database, backup);
        example = await startExample(directory, file, command);
        await untilInStep(directory, example);
        // A backup is restored while it is running, and the database catches up.
        await write();
        await untilInStep(directory, example);
        await server.stop();
        await restoreSqlite({ from: backup, databaseUrl: server.database, now: () => new Date() });
        await server.restart();
        await write();
        await write();
        await untilInStep(directory, example);
      } finally {
        await kill(example);
      }
    },
    120_000,
  );
}
