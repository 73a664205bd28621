// Concurrent use of one record, key or token on two replicas, as their clients see it.
import { expect, test } from "bun:test";
import { isLong } from "../long.ts";
import { contendForKeys, contendForVersions, createUser } from "./contend.ts";
import { possible, runCommand, startWorld, walk } from "./pair.ts";

const KEYS = isLong ? 200 : 100;
const POSTS = 8;
const ROUNDS = isLong ? 100 : 50;
const EDITS = 4;
/** A revocation has taken effect on every replica after this. */
const REVOKED_MS = 5_000;

test.if(possible)(
  "replicas agree on idempotency keys, edits and totals when clients use both concurrently",
  async () => {
    await using world = await startWorld();
    const { pair, database } = world;
    // Both started without a token: the replica that created the token printed it, once.
    const printed = pair.both.flatMap(({ output }) => output.match(/^ {2}uat_\w+$/gm) ?? []);
    expect(printed).toEqual([`  ${pair.token}`]);

    const user = await createUser(pair, "ann@example.com");
    await contendForKeys(pair, user["id"], KEYS, POSTS);
    await contendForVersions(pair, user, ROUNDS, EDITS);
    expect(await walk(pair, "/users")).toMatchObject([{ id: user["id"], version: ROUNDS + 1 }]);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  60_000,
);

test.if(possible)(
  "token revoke takes effect on both replicas within 5 s when both have cached the token",
  async () => {
    await using world = await startWorld();
    const { pair, database } = world;
    const created = await runCommand(database, "token", "create", "laptop");
    const token = created.stdout.trim();
    const ask = async () => {
      const responses = await Promise.all(
        pair.both.map((replica) => replica.call("GET", "/users", { token })),
      );
      return responses.map(({ status }) => status);
    };
    expect(await ask()).toEqual([200, 200]);
    // Cached as late as possible.
    await Bun.sleep(50);
    expect((await runCommand(database, "token", "revoke", "laptop")).code).toBe(0);
    const revokedMs = performance.now();
    const rejecting = new Set<number>();
    while (rejecting.size < pair.both.length) {
      const isOver = performance.now() - revokedMs >= REVOKED_MS;
      for (const [replica, status] of (await ask()).entries()) {
        if (status === 401) rejecting.add(replica);
        // Once rejected, it stays rejected.
        else
          expect([replica, status, isOver, rejecting.has(replica)]).toEqual([
            replica,
            200,
            false,
            false,
          ]);
      }
      await Bun.sleep(20);
    }
    expect(await ask()).toEqual([401, 401]);
  },
  30_000,
);
