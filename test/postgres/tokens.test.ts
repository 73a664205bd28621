import { expect, test } from "bun:test";
import type { Token } from "../../src/domain/token.ts";
import { createTokenCache, MAX_CACHED, MAX_UNKNOWN } from "../../src/postgres/tables/tokens.ts";
import { expectRejection } from "../support/expect-error.ts";

function tokenOf(hash: string): Token {
  const times = { created_at: "", expires_at: null, last_used_at: null, revoked_at: null };
  return { hash, name: hash, scope: "read", ...times };
}

/** A cache whose reads the test resolves or rejects, with a clock that the test sets. */
function makeReads() {
  const clock = { nowMs: 0 };
  interface Read {
    readonly hash: string;
    readonly isKnown: boolean;
    readonly respond: (token: Token | null) => void;
    readonly fail: () => void;
  }
  const asked: Read[] = [];
  const read = (hash: string, isKnown: boolean) => {
    const { promise, resolve, reject } = Promise.withResolvers<Token | null>();
    asked.push({ hash, isKnown, respond: resolve, fail: () => reject(new Error("gone")) });
    return promise;
  };
  const { find, clear } = createTokenCache(read, () => clock.nowMs);
  const memory = { find: async (hash: string) => find(hash), clear };
  return { asked, memory, clock };
}

test.each([
  ["before", [0, 1]],
  ["after", [1, 0]],
] as const)(
  "find does not cache a token that was read before the tokens changed when it arrives %s the next one",
  async (_what, order) => {
    const { asked, memory } = makeReads();
    const before = memory.find("a");
    memory.clear();
    const after = [memory.find("a"), memory.find("a")];
    expect(asked).toHaveLength(2);
    const revoked = { ...tokenOf("a"), revoked_at: "now" };
    for (const at of order) {
      asked[at]?.respond(at === 0 ? tokenOf("a") : revoked);
      await (at === 0 ? before : after[0]);
    }
    expect(await before).toEqual(tokenOf("a"));
    const finds = [...after, memory.find("a")];
    expect(await Promise.all(finds)).toEqual(finds.map(() => revoked));
    expect(asked).toHaveLength(2);
  },
);

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

test("find rejects an unknown token when too many are being read, and reads known ones", async () => {
  const { asked, memory, clock } = makeReads();
  const known = memory.find("known");
  asked[0]?.respond(tokenOf("known"));
  await known;
  // It must be read again.
  clock.nowMs = 4_000;
  const finds = Array.from({ length: MAX_UNKNOWN }, (_, at) => memory.find(`unknown ${at}`));
  // Those that are being read are shared.
  void memory.find("unknown 0");
  await expectRejection(memory.find("late"), "unavailable", "too many unknown tokens");
  expect(asked).toHaveLength(1 + MAX_UNKNOWN);
  // Also after a read that fails.
  const failing = memory.find("known");
  expect(asked.map(({ isKnown }) => isKnown)).toEqual([...finds.map(() => false), false, true]);
  asked[1 + MAX_UNKNOWN]?.fail();
  await expect(failing).rejects.toThrow("gone");
  const again = memory.find("known");
  asked[2 + MAX_UNKNOWN]?.respond(tokenOf("known"));
  expect(await again).toEqual(tokenOf("known"));
  for (const { respond } of asked) respond(null);
  expect(await Promise.all(finds)).toEqual(finds.map(() => null));
  // They are not cached.
  const before = asked.length;
  const found = memory.find(`unknown ${MAX_UNKNOWN - 1}`);
  expect(asked).toHaveLength(before + 1);
  asked.at(-1)?.respond(null);
  expect(await found).toBeNull();
  const next = memory.find("late");
  asked.at(-1)?.respond(tokenOf("late"));
  expect(await next).toEqual(tokenOf("late"));
});

test("find forgets the token that was read first when the cache is full", async () => {
  const { asked, memory, clock } = makeReads();
  const read = async (hash: string) => {
    const found = memory.find(hash);
    asked.at(-1)?.respond(tokenOf(hash));
    expect(await found).toEqual(tokenOf(hash));
  };
  for (let at = 0; at < MAX_CACHED; at += 1) await read(`${at}`);
  clock.nowMs = 4_000;
  // Read again, so the oldest is now 1.
  await read("0");
  await read("new");
  clock.nowMs = 7_000;
  const before = asked.length;
  for (const hash of ["0", "new"]) expect(await memory.find(hash)).toEqual(tokenOf(hash));
  expect(asked).toHaveLength(before);
  for (let at = 0; at < MAX_UNKNOWN; at += 1) void memory.find(`unknown ${at}`);
  // It is not known any more, unlike the next one.
  await expectRejection(memory.find("1"), "unavailable", "too many unknown tokens");
  await read("2");
});
