// Runs the programs in docs/examples that follow changes, each behind a network that loses, cuts and doubles: each keeps a
// copy in step while records change, and when changes are gone.
import { expect, test } from "bun:test";
import { restoreSqlite } from "../../src/sqlite/whole/restore.ts";
import { backUp } from "../sqlite/make-backup.ts";
import { makeDirectory } from "../support/directory.ts";
import { startFlakyNetwork } from "../support/flaky-network.ts";
import { withStore } from "../support/open-store.ts";
import type { Running } from "../support/program.ts";
import {
  exampleOf,
  killExample,
  type RuntimeName,
  runtimes,
  startExample,
  untilInStep,
} from "./examples.ts";
import { newEmail, newOrder, newUser } from "./make.ts";
import { againstBinary, startSharedServer } from "./server.ts";

const server = await startSharedServer();

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

const examples: readonly (readonly [RuntimeName, file: string])[] = [
  ["Bun", "follow.ts"],
  ["Node 22.18", "follow.ts"],
  ["Python", "follow.py"],
  ["Bash with curl and jq", "follow.sh"],
];
const runnable = examples.filter(([name]) => runtimes[name].canRun);

test.skipIf(!againstBinary)(
  `${runnable.map(([name, file]) => `${file} in ${name}`).join(", ")} keep a copy in step`,
  async () => {
    using directory = makeDirectory();
    await using resources = new AsyncDisposableStack();
    const env = { TOKEN: server.readToken };
    const backup = directory.at("backup.db");
    const copies = await Promise.all(
      runnable.map(async ([name, file], index) => ({
        name,
        source: await exampleOf(file),
        at: resources.use(makeDirectory()),
        network: resources.use(await startFlakyNetwork(server, index + 1)),
      })),
    );
    let running: Running[] = [];
    async function start(): Promise<void> {
      running = await Promise.all(
        copies.map(({ name, source, at, network }) =>
          startExample(at, name, source, network.url, env),
        ),
      );
    }
    const kill = () => Promise.all(running.map(killExample));
    resources.defer(async () => void (await kill()));
    async function expectInStep(): Promise<void> {
      const each = copies.map(({ at }, index) => untilInStep(server, at, running[index]!));
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
    for (const { name, network } of copies)
      expect([name, network.isExhausted()]).toEqual([name, true]);
  },
  180_000,
);
