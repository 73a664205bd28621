// Use of one token on two replicas, as its clients see it.
import { expect, test } from "bun:test";
import { possible, runCommand, startWorld } from "./pair.ts";

/** A revocation has taken effect on every replica after this. */
const REVOKED_MS = 5_000;

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
  180_000,
);
