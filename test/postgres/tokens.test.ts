import { expect, test } from "bun:test";
import { createTokenCache } from "../../src/postgres/tokens.ts";
import type { Token } from "../../src/token.ts";
import { expectRejection } from "../expect-error.ts";

function tokenOf(hash: string): Token {
  const times = { created_at: "", expires_at: null, last_used_at: null, revoked_at: null };
  return { hash, name: hash, scope: "read", ...times };
}

/** A cache whose reads the test resolves or rejects, with a clock that the test sets. */
function makeReads() {
  const clock = { nowMs: 0 };
  const asked: { hash: string; respond: (token: Token | null) => void; fail: () => void }[] = [];
  const memory = createTokenCache(
    (hash) => {
      const { promise, resolve, reject } = Promise.withResolvers<Token | null>();
      asked.push({ hash, respond: resolve, fail: () => reject(new Error("gone")) });
      return promise;
    },
    () => clock.nowMs,
  );
  return { asked, memory, clock };
}

test("find reads once when called concurrently, and then uses the cache", async () => {
  const { asked, memory } = makeReads();
  const finds = [memory.find("a"), memory.find("a"), memory.find("b")];
  expect(asked.map(({ hash }) => hash)).toEqual(["a", "b"]);
  for (const { hash, respond } of asked) respond(tokenOf(hash));
  expect(await Promise.all(finds)).toEqual([tokenOf("a"), tokenOf("a"), tokenOf("b")]);
  expect(await memory.find("a")).toEqual(tokenOf("a"));
  expect(asked).toHaveLength(2);
});

test("find reads again when there was no such token, or the read failed", async () => {
  const { asked, memory } = makeReads();
  const finds = [memory.find("a"), memory.find("b")];
  asked[0]?.respond(null);
  asked[1]?.fail();
  expect(await finds[0]).toBeNull();
  await expect(finds[1]).rejects.toThrow("gone");
  void memory.find("a");
  void memory.find("b");
  expect(asked).toHaveLength(4);
});

test("find does not cache a token when it was read before the tokens changed", async () => {
  const { asked, memory } = makeReads();
  const before = memory.find("a");
  memory.clear();
  const after = memory.find("a");
  expect(asked).toHaveLength(2);
  asked[0]?.respond(tokenOf("a"));
  expect(await before).toEqual(tokenOf("a"));
  const shared = memory.find("a");
  expect(asked).toHaveLength(2);
  const revoked = { ...tokenOf("a"), revoked_at: "now" };
  asked[1]?.respond(revoked);
  expect(await Promise.all([after, shared, memory.find("a")])).toEqual([revoked, revoked, revoked]);
});

test("find does not cache a token when a later read has returned before it", async () => {
  const { asked, memory } = makeReads();
  const before = memory.find("a");
  memory.clear();
  const after = memory.find("a");
  const revoked = { ...tokenOf("a"), revoked_at: "now" };
  asked[1]?.respond(revoked);
  await after;
  asked[0]?.respond(tokenOf("a"));
  await before;
  expect(await memory.find("a")).toEqual(revoked);
});

test("find reads a token again when 4 s have passed since the last read began", async () => {
  const { asked, memory, clock } = makeReads();
  const first = memory.find("a");
  clock.nowMs = 1_000;
  asked[0]?.respond(tokenOf("a"));
  await first;
  clock.nowMs = 3_999;
  expect(await memory.find("a")).toEqual(tokenOf("a"));
  expect(asked).toHaveLength(1);
  clock.nowMs = 4_000;
  const again = memory.find("a");
  const revoked = { ...tokenOf("a"), revoked_at: "now" };
  asked[1]?.respond(revoked);
  expect(await again).toEqual(revoked);
});

test("find does not use a read that takes 4 s, since when the token may have been revoked", async () => {
  const { asked, memory, clock } = makeReads();
  const slow = memory.find("a");
  clock.nowMs = 4_000;
  const later = memory.find("a");
  expect(asked).toHaveLength(2);
  asked[0]?.respond(tokenOf("a"));
  await expectRejection(slow, "unavailable", "the database is busy");
  asked[1]?.respond(tokenOf("a"));
  expect(await Promise.all([later, memory.find("a")])).toEqual([tokenOf("a"), tokenOf("a")]);
  expect(asked).toHaveLength(2);
});
