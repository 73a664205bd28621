import { expect, test } from "bun:test";
import { createTokenVerifier } from "../../src/http/auth.ts";
import { hashToken, newToken, type Token, type TokenStore } from "../../src/token.ts";
import { expectRejection } from "../expect-error.ts";

const minute_ms = 60_000;

/** Both verifiers, with one stored token and a clock that the tests change. */
function makeVerifiers(api_token: string | null = null) {
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
    queries: [] as string[],
    touched: [] as string[],
    touching: async () => {},
    failures: 0,
    max_failures: Number.POSITIVE_INFINITY,
  };
  const find = (hash: string) => {
    it.queries.push(hash);
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
  const request = new Request("http://a/");
  const invalidTokenLimiter = (counted: Request) => {
    expect(counted).toBe(request);
    it.failures += 1;
    return it.failures <= it.max_failures ? 0 : 17;
  };
  const verifier = createTokenVerifier({ tokens, sync_reads, api_token, now, invalidTokenLimiter });
  return Object.assign(it, {
    verify: {
      verifyToken: (given: string | undefined) => verifier.verifyToken(given, request),
      verifyTokenSync: async (given: string | undefined) =>
        verifier.verifyTokenSync?.(given, request),
    },
  });
}

const names = ["verifyToken", "verifyTokenSync"] as const;

for (const name of names) {
  test(`\`${name}\` reads the store only when the credentials have the format of a token`, async () => {
    const it = makeVerifiers();
    const [unknown, typo] = [newToken(), newToken().slice(1)];
    for (const credentials of [undefined, "", "ab", typo, unknown]) {
      const code = credentials === undefined ? "unauthorised" : "invalid_token";
      await expectRejection(it.verify[name](credentials), code, "unauthorised");
    }
    expect(it.queries).toEqual([hashToken(unknown)]);
  });

  test(`\`${name}\` records the use once a minute, and again when that failed`, async () => {
    const it = makeVerifiers();
    const use = async () => {
      await it.verify[name](it.credentials);
      // The use is recorded after the response.
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

  test(`\`${name}\` records no use when it is already recorded or the token is rejected`, async () => {
    const it = makeVerifiers();
    it.token = { ...it.token, last_used_at: "2026-11-20T18:57:00.000Z" };
    await it.verify[name](it.credentials);
    it.token = { ...it.token, last_used_at: null, revoked_at: it.token.created_at };
    it.time_ms += minute_ms;
    await expectRejection(it.verify[name](it.credentials), "invalid_token");
    expect(it.touched).toEqual([]);
  });

  test(`\`${name}\` counts invalid tokens, and reports too many of them`, async () => {
    const it = makeVerifiers();
    it.max_failures = 2;
    await it.verify[name](it.credentials);
    await expectRejection(it.verify[name](undefined), "unauthorised");
    expect(it.failures).toBe(0);
    await expectRejection(it.verify[name]("ab"), "invalid_token");
    await expectRejection(it.verify[name](newToken()), "invalid_token");
    const message = "too many invalid tokens from this address";
    await expectRejection(it.verify[name]("ab"), "too_many_invalid_tokens", message);
    const error = await it.verify[name](newToken()).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "too_many_invalid_tokens", message, retry_after_s: 17 });
    expect(await it.verify[name](it.credentials)).toBe(it.token);
  });

  test(`\`${name}\` accepts API_TOKEN without reading the store`, async () => {
    const api_token = newToken();
    const it = makeVerifiers(api_token);
    expect(await it.verify[name](api_token)).toMatchObject({ name: "API_TOKEN", scope: "write" });
    expect([it.queries, it.touched]).toEqual([[], []]);
  });
}
