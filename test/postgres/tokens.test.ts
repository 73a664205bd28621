import { expect, test } from "bun:test";
import type { Token } from "../../src/domain/token.ts";
import { createTokenCache, MAX_CACHED, MAX_UNKNOWN } from "../../src/postgres/tables/tokens.ts";
import { expectRejection } from "../support/expect-error.ts";

function tokenOf(hash: string): Token {
  const times = { created_at: "", expires_at: null, last_used_at: null, revoked_at: null };
  return { hash, name: hash, scope: "read", ...times };
}

const revoked = { ...tokenOf("a"), revoked_at: "now" };

/** A cache whose reads the test resolves or rejects, with a clock that the test sets. */
function makeCache() {
  const clock = { nowMs: 0 };
  const reads: (PromiseWithResolvers<Token | null> & { readonly isKnown: boolean })[] = [];
  const read = (_hash: string, isKnown: boolean) => {
    const begun = { ...Promise.withResolvers<Token | null>(), isKnown };
    reads.push(begun);
    return begun.promise;
  };
  const { find, clear } = createTokenCache(read, () => clock.nowMs);
  return { reads, findNow: find, find: async (hash: string) => find(hash), clear, clock };
}

for (const [what, order] of [
  ["before", [0, 1]],
  ["after", [1, 0]],
] as const)
  test(`find does not cache a token that was read before the tokens changed when it arrives ${what} the next one`, async () => {
    const { reads, find, clear } = makeCache();
    const before = find("a");
    clear();
    const after = [find("a"), find("a")];
    for (const at of order) {
      reads[at]?.resolve(at === 0 ? tokenOf("a") : revoked);
      await (at === 0 ? before : after[0]);
    }
    expect(await before).toEqual(tokenOf("a"));
    expect(await Promise.all([...after, find("a")])).toEqual([revoked, revoked, revoked]);
    expect(reads).toHaveLength(2);
  });

test("find returns a cached token in the same turn, also when others are being read", async () => {
  const { reads, findNow, find } = makeCache();
  const first = findNow("a");
  expect(first).toBeInstanceOf(Promise);
  reads[0]?.resolve(tokenOf("a"));
  await first;
  void find("b");
  expect(findNow("a")).toEqual(tokenOf("a"));
});

test("find reads a token again when 4 s have passed since the last read began, and does not use one that takes so long", async () => {
  const { reads, find, clock } = makeCache();
  const first = find("a");
  clock.nowMs = 1_000;
  reads[0]?.resolve(tokenOf("a"));
  await first;
  clock.nowMs = 3_999;
  expect(await find("a")).toEqual(tokenOf("a"));
  expect(reads).toHaveLength(1);
  clock.nowMs = 4_000;
  const slow = find("a");
  clock.nowMs = 8_000;
  const later = find("a");
  expect(reads).toHaveLength(3);
  // The token may have been revoked since the read began.
  reads[1]?.resolve(tokenOf("a"));
  await expectRejection(slow, "unavailable", "the database is busy");
  reads[2]?.resolve(revoked);
  expect(await Promise.all([later, find("a")])).toEqual([revoked, revoked]);
  expect(reads).toHaveLength(3);
});

test("find rejects an unknown token when too many are being read, and reads known ones", async () => {
  const { reads, find, clock } = makeCache();
  const known = find("known");
  reads[0]?.resolve(tokenOf("known"));
  await known;
  // It must be read again.
  clock.nowMs = 4_000;
  const finds = Array.from({ length: MAX_UNKNOWN }, (_, at) => find(`unknown ${at}`));
  // Those that are being read are shared.
  void find("unknown 0");
  await expectRejection(find("late"), "unavailable", "too many unknown tokens");
  // Also after a read that fails.
  const failing = find("known");
  expect(reads.map(({ isKnown }) => isKnown)).toEqual([
    ...Array(1 + MAX_UNKNOWN).fill(false),
    true,
  ]);
  reads.at(-1)?.reject(new Error("gone"));
  await expect(failing).rejects.toThrow("gone");
  const again = find("known");
  reads.at(-1)?.resolve(tokenOf("known"));
  expect(await again).toEqual(tokenOf("known"));
  for (const { resolve } of reads) resolve(null);
  expect(await Promise.all(finds)).toEqual(finds.map(() => null));
  // They are not cached.
  for (const hash of ["unknown 1", "late"]) {
    const found = find(hash);
    reads.at(-1)?.resolve(tokenOf(hash));
    expect(await found).toEqual(tokenOf(hash));
  }
});

test("find forgets the token that was read first when the cache is full", async () => {
  const { reads, find, clock } = makeCache();
  const read = async (hash: string) => {
    const found = find(hash);
    reads.at(-1)?.resolve(tokenOf(hash));
    expect(await found).toEqual(tokenOf(hash));
  };
  for (let at = 0; at < MAX_CACHED; at += 1) await read(`${at}`);
  clock.nowMs = 4_000;
  // Read again, so the oldest is now 1.
  await read("0");
  await read("new");
  clock.nowMs = 7_000;
  const before = reads.length;
  for (const hash of ["0", "new"]) expect(await find(hash)).toEqual(tokenOf(hash));
  expect(reads).toHaveLength(before);
  for (let at = 0; at < MAX_UNKNOWN; at += 1) void find(`unknown ${at}`);
  // It is not known any more, unlike the next one.
  await expectRejection(find("1"), "unavailable", "too many unknown tokens");
  await read("2");
});
