import { expect, test } from "bun:test";
import { hashToken, newToken, type Token, type TokenFields } from "../../src/domain/token.ts";
import { type Open, openWithClock, time } from "./open.ts";

const later = "2026-11-20T18:57:04.120Z";

function tokenFields(name: string, fields: Partial<TokenFields> = {}): TokenFields {
  return { hash: hashToken(newToken()), name, scope: "write", expires_at: null, ...fields };
}

function tokenOf(fields: TokenFields): Token {
  return { ...fields, created_at: time, last_used_at: null, revoked_at: null };
}

export function tokensContract(open: Open): void {
  test("tokens.create returns null when a token that is not revoked has the name, also if calls are concurrent", async () => {
    await using it = await openWithClock(open);
    const { create, list } = it.store.tokens;
    const fields = [1, 2, 3].map(() => tokenFields("a", { expires_at: time }));
    const made = (await Promise.all(fields.map(create))).filter((token) => token !== null);
    expect([made.length, await list()]).toEqual([1, made]);
    // An expired token keeps its name until it is revoked, so that names in the list are unambiguous.
    it.pass(1000);
    expect(await create(tokenFields("a"))).toBeNull();
    await create(tokenFields("A"));
    expect((await list()).map(({ name }) => name)).toEqual(["a", "A"]);
  });

  test("tokens.revoke marks the valid token of the name as revoked and frees it, tokens.find finds each by its hash, and tokens.touch stores when it was used", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("a", { scope: "read", expires_at: later });
    const other = tokenFields("b 😀");
    expect(await it.store.tokens.create(first)).toEqual(tokenOf(first));
    expect(await it.store.tokens.create(other)).toEqual(tokenOf(other));
    for (const hash of ["", "%", first.hash.toUpperCase(), hashToken("other")])
      expect(await it.store.tokens.find(hash)).toBeNull();
    it.pass(1000);
    const revoked = { ...tokenOf(first), revoked_at: later };
    expect(await it.store.tokens.revoke("a")).toEqual(revoked);
    expect(await it.store.tokens.find(first.hash)).toEqual(revoked);
    expect(await it.store.tokens.find(other.hash)).toEqual(tokenOf(other));
    for (const name of ["a", "A", "%", ""]) expect(await it.store.tokens.revoke(name)).toBeNull();

    const second = tokenFields("a");
    const created = await it.store.tokens.create(second);
    expect(created).toEqual({ ...tokenOf(second), created_at: later });
    // Only the valid token of this name is revoked; the one revoked before stays as it is.
    it.pass(1000);
    expect(await it.store.tokens.revoke("a")).toMatchObject({ hash: second.hash });
    expect(await it.store.tokens.find(first.hash)).toEqual(revoked);
    for (const hash of [other.hash, hashToken("unknown")]) await it.store.tokens.touch(hash, time);
    const [, touched, ...more] = await it.store.tokens.list();
    expect(touched).toEqual({ ...tokenOf(other), last_used_at: time });
    expect(more).toMatchObject([{ hash: second.hash, last_used_at: null }]);
  });
}
