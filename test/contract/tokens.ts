import { expect, test } from "bun:test";
import { hashToken, newToken, type Token, type TokenFields } from "../../src/domain/token.ts";
import { expectRejection } from "../support/expect-error.ts";
import { type Open, openWithClock, time } from "./open.ts";

const later = "2026-11-20T18:57:04.120Z";

function tokenFields(name: string, fields: Partial<TokenFields> = {}): TokenFields {
  return { hash: hashToken(newToken()), name, scope: "write", expires_at: null, ...fields };
}

function tokenOf(fields: TokenFields): Token {
  return { ...fields, created_at: time, last_used_at: null, revoked_at: null };
}

export function tokensContract(open: Open): void {
  test("tokens.find returns null when no token has this hash", async () => {
    await using it = await openWithClock(open);
    const fields = tokenFields("a");
    await it.store.tokens.create(fields);
    for (const hash of ["", "%", fields.hash.toUpperCase(), hashToken("other")]) {
      expect(await it.store.tokens.find(hash)).toBeNull();
    }
  });

  test("tokens.create rejects a name when a token that is not revoked has it", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("a", { expires_at: time });
    await it.store.tokens.create(first);
    await expectRejection(it.store.tokens.create(tokenFields("a")), "operator", /\ba\b/);
    // An expired token keeps its name until it is revoked, so that names in the list are unambiguous.
    it.pass(1000);
    await expectRejection(it.store.tokens.create(tokenFields("a")), "operator");
    await it.store.tokens.create(tokenFields("A"));
    expect((await it.store.tokens.list()).map(({ name }) => name)).toEqual(["a", "A"]);
  });

  test("tokens.revoke marks the token as revoked and frees its name", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("a", { scope: "read", expires_at: later });
    const other = tokenFields("b 😀");
    expect(await it.store.tokens.create(first)).toEqual(tokenOf(first));
    expect(await it.store.tokens.create(other)).toEqual(tokenOf(other));
    it.pass(1000);
    const revoked = { ...tokenOf(first), revoked_at: later };
    expect(await it.store.tokens.revoke("a")).toEqual(revoked);
    expect(await it.store.tokens.find(first.hash)).toEqual(revoked);
    expect(await it.store.tokens.find(other.hash)).toEqual(tokenOf(other));

    const second = tokenFields("a");
    const created = await it.store.tokens.create(second);
    expect(created).toEqual({ ...tokenOf(second), created_at: later });
    // Only the valid token of this name is revoked; the one revoked before stays as it is.
    it.pass(1000);
    expect(await it.store.tokens.revoke("a")).toMatchObject({ hash: second.hash });
    expect(await it.store.tokens.find(first.hash)).toEqual(revoked);
    const hashes = (await it.store.tokens.list()).map(({ hash }) => hash);
    expect(hashes).toEqual([first.hash, other.hash, second.hash]);
  });

  test("tokens.revoke returns null when no valid token has this name", async () => {
    await using it = await openWithClock(open);
    await it.store.tokens.create(tokenFields("a"));
    await it.store.tokens.revoke("a");
    const before = await it.store.tokens.list();
    it.pass(1000);
    for (const name of ["a", "b", "A", "%", ""]) {
      expect(await it.store.tokens.revoke(name)).toBeNull();
    }
    expect(await it.store.tokens.list()).toEqual(before);
  });

  test("tokens.createFirst creates a token only when there has never been one", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("first");
    expect(await it.store.tokens.createFirst(first)).toEqual(tokenOf(first));
    expect(await it.store.tokens.createFirst(tokenFields("second"))).toBeNull();
    // Revoked tokens count: an operator who has revoked all of them does not want a new one.
    await it.store.tokens.revoke("first");
    expect(await it.store.tokens.createFirst(tokenFields("first"))).toBeNull();
    expect(await it.store.tokens.list()).toHaveLength(1);
  });

  test("tokens.create and createFirst create one token when calls are concurrent", async () => {
    await using it = await openWithClock(open);
    const { create, createFirst, list } = it.store.tokens;
    const first = await Promise.all(["a", "b", "c"].map((name) => createFirst(tokenFields(name))));
    const made = first.filter((token) => token !== null);
    expect([made.length, await list()]).toEqual([1, made]);
    const tries = [1, 2, 3].map(() => create(tokenFields("new")));
    const results = await Promise.allSettled(tries);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(await list()).toHaveLength(2);
  });

  test("tokens.touch stores the time of use, and ignores an unknown token", async () => {
    await using it = await openWithClock(open);
    const fields = tokenFields("a");
    const other = tokenFields("b");
    await it.store.tokens.create(fields);
    await it.store.tokens.create(other);
    const usedAt = "2026-11-20T18:57:00.000Z";
    await it.store.tokens.touch(fields.hash, usedAt);
    await it.store.tokens.touch(hashToken("other"), usedAt);
    expect(await it.store.tokens.list()).toEqual([
      { ...tokenOf(fields), last_used_at: usedAt },
      tokenOf(other),
    ]);
  });
}
