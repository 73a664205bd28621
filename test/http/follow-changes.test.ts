// Runs the programs in docs/examples that follow changes: each keeps a copy in step while records change, and when changes are gone.
import { afterAll, beforeAll, test } from "bun:test";
import { restoreSqlite } from "../../src/sqlite/whole/restore.ts";
import { backUp } from "../sqlite/make-backup.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";
import type { Running } from "../support/program.ts";
import { canRun, killExample, startExample, untilInStep } from "./examples.ts";
import { newEmail, newOrder, newUser } from "./make.ts";
import { againstBinary, startServer } from "./server.ts";

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

function startFollowing(directory: TemporaryDirectory, file: string): Promise<Running> {
  return startExample(directory, file, proxy.url.origin, { TOKEN: server.readToken });
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

// The slowest one first, because each adds records.
for (const file of ["follow.sh", "follow.mts", "follow.py"]) {
  test.skipIf(!againstBinary || !canRun(file))(
    `${file} keeps a copy in step`,
    async () => {
      using directory = makeDirectory();
      const backup = directory.at("backup.db");
      let example = await startFollowing(directory, file);
      try {
        await untilInStep(server, directory, example);
        await write();
        await untilInStep(server, directory, example);
        // It is killed, and continues where it was.
        await killExample(example);
        await write();
        example = await startFollowing(directory, file);
        await untilInStep(server, directory, example);
        // Changes expire while it is not running.
        await killExample(example);
        await write();
        await withStore(server.database, async (store) => {
          await store.changes.deleteExpired(new Date(8.64e15));
        });
        await backUp(server.database, backup);
        example = await startFollowing(directory, file);
        await untilInStep(server, directory, example);
        // A backup is restored while it is running, and the database catches up.
        await write();
        await untilInStep(server, directory, example);
        // Stopped otherwise, it would respond to the program for two seconds.
        await server.stop("SIGKILL");
        await restoreSqlite({ from: backup, databaseUrl: server.database, now: () => new Date() });
        await server.restart();
        await write();
        await write();
        await untilInStep(server, directory, example);
      } finally {
        await killExample(example);
      }
    },
    120_000,
  );
}
