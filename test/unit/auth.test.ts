import { expect, test } from "bun:test";
import { createTokenVerifier } from "../../src/http/auth.ts";
import { hashToken, newToken, type Token, type TokenStore } from "../../src/token.ts";
import { expectRejection, expectThrown } from "../expect-error.ts";

const minute_ms = 60_000;

/** Both ways to identify, over one token that is changed at will, and a clock that is moved. */
function makeWorld(api_token: string | null = null) {
  const credentials = newToken();
  const it = {
    credentials,
    token: {
      hash: hashToken(credentials),
      name: "ci",
      scope: "read",
      created_at: "2026-11-20T18:57:03.120Z",
      expires_at: null,
      last_used_at: null,
      revoked_at: null,
    } as Token,
    time_ms: Date.parse("2026-11-20T18:57:03.120Z"),
    asked: [] as string[],
    touched: [] as string[],
    touching: async () => {},
  };
  const find = (hash: string) => {
    it.asked.push(hash);
    return hash === it.token.hash ? it.token : null;
  };
  const tokens = {
    find: async (hash: string) => find(hash),
    touch(hash: string, used_at: string) {
      expect(hash).toBe(it.token.hash);
      it.touched.push(used_at);
      return it.touching();
    },
  } as unknown as TokenStore;
  const now = () => new Date(it.time_ms);
  const sync_reads = { token: find };
  const verifier = createTokenVerifier({ tokens, sync_reads, api_token, now });
  const atOnce = verifier.verifyTokenSync!;
  return Object.assign(it, {
    ways: {
      identify: verifier.verifyToken,
      identifyAtOnce: async (given: string | undefined) => atOnce(given),
    },
    atOnce,
  });
}

const ways = ["identify", "identifyAtOnce"] as const;

for (const way of ways) {
  test(`\`${way}\` returns the current state of the token when it is valid`, async () => {
    const it = makeWorld();
    expect(await it.ways[way](it.credentials)).toBe(it.token);
    it.token = { ...it.token, scope: "write" };
    expect(await it.ways[way](it.credentials)).toBe(it.token);
    expect(it.asked).toEqual([it.token.hash, it.token.hash]);
  });

  test(`\`${way}\` rejects a token when it was revoked or has expired since its last use`, async () => {
    for (const end of ["revoked_at", "expires_at"] as const) {
      const it = makeWorld();
      const valid = it.token;
      await it.ways[way](it.credentials);
      it.token = { ...valid, [end]: new Date(it.time_ms + 1000).toISOString() };
      if (end === "expires_at") await it.ways[way](it.credentials);
      it.time_ms += 1000;
      await expectRejection(it.ways[way](it.credentials), "invalid_token", "unauthorised");
      it.token = { ...valid, hash: hashToken(newToken()) };
      await expectRejection(it.ways[way](it.credentials), "invalid_token", "unauthorised");
    }
  });

  test(`\`${way}\` queries the store only when the credentials have the format of a token`, async () => {
    const it = makeWorld();
    const [unknown, typo] = [newToken(), newToken().slice(1)];
    for (const credentials of [undefined, "", "ab", typo, unknown]) {
      const code = credentials === undefined ? "unauthorised" : "invalid_token";
      await expectRejection(it.ways[way](credentials), code, "unauthorised");
    }
    expect(it.asked).toEqual([hashToken(unknown)]);
  });

  test(`\`${way}\` records the use once a minute, and again when that failed`, async () => {
    const it = makeWorld();
    const use = async () => {
      await it.ways[way](it.credentials);
      // What was not waited for has ended.
      await Bun.sleep(0);
    };
    for (let time = 0; time < 3; time += 1) await use();
    expect(it.touched).toEqual(["2026-11-20T18:57:00.000Z"]);
    it.time_ms += minute_ms;
    it.touching = () => Promise.reject(new Error("the disk is full"));
    for (let time = 0; time < 2; time += 1) await use();
    it.touching = async () => {};
    for (let time = 0; time < 2; time += 1) await use();
    expect(it.touched.slice(1)).toEqual(Array(3).fill("2026-11-20T18:58:00.000Z"));
  });

  test(`\`${way}\` records no use when it is already recorded or the token is rejected`, async () => {
    const it = makeWorld();
    it.token = { ...it.token, last_used_at: "2026-11-20T18:57:00.000Z" };
    await it.ways[way](it.credentials);
    it.token = { ...it.token, last_used_at: null, revoked_at: it.token.created_at };
    it.time_ms += minute_ms;
    await expectRejection(it.ways[way](it.credentials), "invalid_token");
    expect(it.touched).toEqual([]);
  });

  test(`\`${way}\` accepts the token of the environment without a query`, async () => {
    const api_token = newToken();
    const it = makeWorld(api_token);
    expect(await it.ways[way](api_token)).toMatchObject({ name: "API_TOKEN", scope: "write" });
    expect([it.asked, it.touched]).toEqual([[], []]);
  });
}

test("`verifyTokenSync` is synchronous", () => {
  const it = makeWorld();
  expect(it.atOnce(it.credentials)).toBe(it.token);
  expectThrown(() => it.atOnce(newToken()), "invalid_token", "unauthorised");
});
