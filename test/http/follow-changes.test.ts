// Runs the programs in docs/examples that follow changes: each keeps a copy in step while records change, and when changes are gone.
import { afterAll, test } from "bun:test";
import { restoreSqlite } from "../../src/sqlite/whole/restore.ts";
import { backUp } from "../sqlite/make-backup.ts";
import { makeDirectory } from "../support/directory.ts";
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
afterAll(async () => {
  await proxy.stop(true);
  await server[Symbol.asyncDispose]();
});

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
  await withStore(server.database, ({ bulk }) => bulk.users.import([again]));
}

const files = ["follow.mts", "follow.py", "follow.sh"].filter(canRun);

test.skipIf(!againstBinary)(
  `${files.join(", ")} keep a copy in step`,
  async () => {
    using directory = makeDirectory();
    await using resources = new AsyncDisposableStack();
    const env = { TOKEN: server.readToken };
    const backup = directory.at("backup.db");
    const copies = files.map((file) => ({ file, at: resources.use(makeDirectory()) }));
    let running: Running[] = [];
    async function start(): Promise<void> {
      running = await Promise.all(
        copies.map(({ file, at }) => startExample(at, file, proxy.url.origin, env)),
      );
    }
    const kill = () => Promise.all(running.map(killExample));
    resources.defer(async () => void (await kill()));
    async function expectInStep(): Promise<void> {
      const each = running.map((example, index) =>
        untilInStep(server, copies[index]?.at ?? directory, example),
      );
      await Promise.all(each);
    }
    // More users and orders than a page has.
    for (let round = 0; round < 2; round += 1) await write();
    await start();
    await expectInStep();
    await write();
    await expectInStep();
    // They are killed, and continue where they were.
    await kill();
    await write();
    await start();
    await expectInStep();
    // Changes expire while they are not running.
    await kill();
    await write();
    await withStore(server.database, async ({ changes }) => {
      await changes.deleteExpired(new Date(8.64e15));
    });
    await backUp(server.database, backup);
    await start();
    await expectInStep();
    // A backup is restored while they are running, and the database catches up.
    await write();
    await expectInStep();
    // Stopped otherwise, it would respond to the programs for two seconds.
    await server.stop("SIGKILL");
    await restoreSqlite({ from: backup, databaseUrl: server.database, now: () => new Date() });
    await server.restart();
    await write();
    await write();
    await expectInStep();
  },
  180_000,
);
