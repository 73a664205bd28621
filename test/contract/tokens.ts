import { expect, test } from "bun:test";
import { hashToken, newToken, type Token, type TokenFields } from "../../src/token.ts";
import { expectRejection } from "../expect-error.ts";
import { type Open, openWithClock } from "./open.ts";

const time = "2026-11-20T18:57:03.120Z";
const later = "2026-11-20T18:57:04.120Z";

function tokenFields(name: string, fields: Partial<TokenFields> = {}): TokenFields {
  return { hash: hashToken(newToken()), name, scope: "write", expires_at: null, ...fields };
}

function tokenOf(fields: TokenFields): Token {
  return { ...fields, created_at: time, last_used_at: null, revoked_at: null };
}

export function tokensContract(open: Open): void {
  test("`tokens.create` keeps the token when its name is new", async () => {
    await using it = await openWithClock(open);
    const forever = tokenFields("forever");
    const expiring = tokenFields("expiring 😀", { scope: "read", expires_at: later });
    expect(await it.store.tokens.create(forever)).toEqual(tokenOf(forever));
    expect(await it.store.tokens.create(expiring)).toEqual(tokenOf(expiring));
    expect(await it.store.tokens.find(expiring.hash)).toEqual(tokenOf(expiring));
    expect(await it.store.tokens.list()).toEqual([tokenOf(forever), tokenOf(expiring)]);
  });

  test("`tokens.find` is null when no token has this hash", async () => {
    await using it = await openWithClock(open);
    const fields = tokenFields("a");
    await it.store.tokens.create(fields);
    for (const hash of ["", "%", fields.hash.toUpperCase(), hashToken("other")]) {
      expect(await it.store.tokens.find(hash)).toBeNull();
    }
  });

  test("`tokens.create` refuses a name when a token that is not revoked has it", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("a", { expires_at: time });
    await it.store.tokens.create(first);
    await expectRejection(it.store.tokens.create(tokenFields("a")), "token_name_taken", /\ba\b/);
    // Expired is not revoked: its name would be ambiguous in the list.
    it.pass(1000);
    await expectRejection(it.store.tokens.create(tokenFields("a")), "token_name_taken");
    await it.store.tokens.create(tokenFields("A"));
    expect((await it.store.tokens.list()).map(({ name }) => name)).toEqual(["a", "A"]);
  });

  test("`tokens.create` makes one token when a name is asked for twice at once", async () => {
    await using it = await openWithClock(open);
    const tries = [1, 2, 3].map(() => it.store.tokens.create(tokenFields("a")));
    const results = await Promise.allSettled(tries);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(await it.store.tokens.list()).toHaveLength(1);
  });

  test("`tokens.revoke` marks the token and frees its name when it is valid", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("a");
    const other = tokenFields("b");
    await it.store.tokens.create(first);
    await it.store.tokens.create(other);
    it.pass(1000);
    const revoked = { ...tokenOf(first), revoked_at: later };
    expect(await it.store.tokens.revoke("a")).toEqual(revoked);
    expect(await it.store.tokens.find(first.hash)).toEqual(revoked);
    expect(await it.store.tokens.find(other.hash)).toEqual(tokenOf(other));

    const second = tokenFields("a");
    const created = await it.store.tokens.create(second);
    expect(created).toEqual({ ...tokenOf(second), created_at: later });
    // Each name is revoked once; the token that was revoked before stays as it is.
    it.pass(1000);
    expect(await it.store.tokens.revoke("a")).toMatchObject({ hash: second.hash });
    expect(await it.store.tokens.find(first.hash)).toEqual(revoked);
    const hashes = (await it.store.tokens.list()).map(({ hash }) => hash);
    expect(hashes).toEqual([first.hash, other.hash, second.hash]);
  });

  test("`tokens.revoke` is null when no valid token has this name", async () => {
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

  test("`tokens.createFirst` makes a token when there has never been one", async () => {
    await using it = await openWithClock(open);
    const first = tokenFields("first");
    expect(await it.store.tokens.createFirst(first)).toEqual(tokenOf(first));
    expect(await it.store.tokens.createFirst(tokenFields("second"))).toBeNull();
    // Revoked tokens count: who has revoked all wants no new one.
    await it.store.tokens.revoke("first");
    expect(await it.store.tokens.createFirst(tokenFields("first"))).toBeNull();
    expect(await it.store.tokens.list()).toHaveLength(1);
  });

  test("`tokens.createFirst` makes one token when asked many times at once", async () => {
    await using it = await openWithClock(open);
    const tries = ["a", "b", "c"].map((name) => it.store.tokens.createFirst(tokenFields(name)));
    const made = (await Promise.all(tries)).filter((token) => token !== null);
    expect(await it.store.tokens.list()).toEqual(made);
    expect(made).toHaveLength(1);
  });

  test("`tokens.touch` notes the time of use when the token is known", async () => {
    await using it = await openWithClock(open);
    const fields = tokenFields("a");
    const other = tokenFields("b");
    await it.store.tokens.create(fields);
    await it.store.tokens.create(other);
    const used_at = "2026-11-20T18:57:00.000Z";
    await it.store.tokens.touch(fields.hash, used_at);
    await it.store.tokens.touch(hashToken("other"), used_at);
    expect(await it.store.tokens.list()).toEqual([
      { ...tokenOf(fields), last_used_at: used_at },
      tokenOf(other),
    ]);
  });
}
