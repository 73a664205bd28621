import { expect, spyOn, test } from "bun:test";
import { createExpiryLog } from "../../src/base/expiry.ts";
import { hashToken, newToken, type Token } from "../../src/domain/token.ts";
import { createAuthenticator } from "../../src/http/input/authentication.ts";
import { expectRejection } from "../support/expect-error.ts";

const MINUTE_MS = 60_000;

function makeAuthenticator({
  later = false,
  readOnly = false,
  secondsBehind = null as number | null,
} = {}) {
  const credentials = newToken();
  const it = {
    authorization: `Bearer ${credentials}`,
    token: {
      hash: hashToken(credentials),
      name: "ci",
      scope: "read",
      created_at: "2026-11-20T18:57:03.120Z",
      expires_at: null,
      last_used_at: null,
      revoked_at: null,
    } as Token,
    timeMs: Date.parse("2026-11-20T18:57:03.120Z"),
    queries: [] as string[],
    touched: [] as string[],
    touching: async () => {},
    warnings: [] as unknown[],
  };
  const tokens = {
    find(hash: string) {
      it.queries.push(hash);
      const token = hash === it.token.hash ? it.token : null;
      return later ? Promise.resolve(token) : token;
    },
    touch(hash: string, usedAt: string) {
      expect(hash).toBe(it.token.hash);
      it.touched.push(usedAt);
      return it.touching();
    },
  };
  const now = () => new Date(it.timeMs);
  const store = { tokens: tokens as never, secondsBehind: () => secondsBehind };
  const warn = (event: string, fields?: object) => it.warnings.push([event, fields]);
  const expiry = createExpiryLog("token", now, { warn, error: warn });
  const config = { apiToken: null, readOnly };
  const { authenticate, clientOf } = createAuthenticator(() => store, config, now, expiry);
  return Object.assign(it, {
    firstEndMs: () => expiry.first()?.endMs ?? null,
    authenticate: async (authorization: string) => authenticate(authorization),
    clientOf,
  });
}

for (const later of [false, true]) {
  const store = later ? "an asynchronous store" : "a synchronous store";

  test(`authentication reads ${store} only when the credentials have the format of a token`, async () => {
    const it = makeAuthenticator({ later });
    const unknown = newToken();
    // The reasons are in auth.test.ts.
    for (const credentials of ["", `Basic ${unknown}`, "Bearer ab", `Bearer ${unknown.slice(1)}`])
      await expect(it.authenticate(credentials)).rejects.toThrow();
    expect(it.queries).toEqual([]);
    await expectRejection(it.authenticate(`Bearer ${unknown}`), "invalid_token", "unknown");
    expect(await it.authenticate(it.authorization)).toBe(it.token);
    expect(it.queries).toEqual([hashToken(unknown), it.token.hash]);
  });

  test(`authentication records the use in ${store} once a minute, and again when that failed, unless it is rejected`, async () => {
    const it = makeAuthenticator({ later });
    it.token = { ...it.token, last_used_at: "2026-11-20T18:57:00.000Z" };
    const use = async () => {
      await it.authenticate(it.authorization);
      // That it failed is noticed later.
      await Bun.sleep(0);
    };
    await use();
    expect(it.touched).toEqual([]);
    it.timeMs += MINUTE_MS;
    it.touching = () => Promise.reject(new Error("the disk is full"));
    for (let time = 0; time < 2; time += 1) await use();
    it.touching = async () => {};
    for (let time = 0; time < 3; time += 1) await use();
    expect(it.touched).toEqual(Array(3).fill("2026-11-20T18:58:00.000Z"));
    it.token = { ...it.token, last_used_at: null, revoked_at: it.token.created_at };
    it.timeMs += MINUTE_MS;
    await expectRejection(it.authenticate(it.authorization), "invalid_token");
    expect(it.touched).toHaveLength(3);
  });
}

for (const restriction of [null, { readOnly: true }, { secondsBehind: 0 }])
  test(`authentication warns once a day when a token expires within 21 days, and records its use unless it may not: ${JSON.stringify(restriction)}`, async () => {
    const it = makeAuthenticator(restriction ?? {});
    const expiresAt = "2026-12-12T18:57:03.120Z";
    it.token = { ...it.token, created_at: "2026-01-01T00:00:00.000Z", expires_at: expiresAt };
    const daysWarned: number[] = [];
    for (let minute = 0; minute < 22 * 24 * 60; minute += 1) {
      expect(it.firstEndMs()).toBe(daysWarned.length > 0 ? Date.parse(expiresAt) : null);
      await it.authenticate(it.authorization);
      if (it.warnings.length > daysWarned.length) daysWarned.push(new Date(it.timeMs).getUTCDate());
      it.timeMs += MINUTE_MS;
    }
    expect(it.touched.length > 0).toBe(restriction === null);
    const days = Array.from({ length: 22 }, (_, at) => 1 + ((20 + at) % 30));
    expect(daysWarned).toEqual(days);
    expect(it.warnings[0]).toEqual(["token expires soon", { token: "ci", expires_at: expiresAt }]);
    const rejected = it.authenticate(it.authorization);
    expect((await expectRejection(rejected, "invalid_token", "expired")).token).toBe("ci");
  });

test("authentication warns in the last quarter when a token lives for less than 84 days, and forgets it a day after its use", async () => {
  const it = makeAuthenticator();
  const endMs = it.timeMs + 40 * 24 * 60 * MINUTE_MS;
  it.token = { ...it.token, expires_at: new Date(endMs).toISOString() };
  for (const [days, ends] of [
    [30 - 1e-4, null],
    [30, endMs],
    [31, endMs],
    [31.01, null],
  ] as const) {
    it.timeMs = endMs + (days - 40) * 24 * 60 * MINUTE_MS;
    if (days <= 30) await it.authenticate(it.authorization);
    expect([days, it.firstEndMs()]).toEqual([days, ends]);
  }
});

test("authentication keeps at most 1,000 headers when one token comes in more spellings", async () => {
  const it = makeAuthenticator();
  const [scheme = "", credentials = ""] = it.authorization.split(" ");
  const { set } = Map.prototype;
  let largest = 0;
  using _spy = spyOn(Map.prototype, "set").mockImplementation(function (
    this: Map<unknown, unknown>,
    ...entry: Parameters<typeof set>
  ) {
    set.apply(this, entry);
    largest = Math.max(largest, this.size);
    return this;
  } as typeof set);
  for (let at = 0; at < 2 ** scheme.length * 17; at += 1) {
    const letters = [...scheme].map((letter, bit) =>
      at & (1 << bit) ? letter.toUpperCase() : letter.toLowerCase(),
    );
    const spaces = " ".repeat(1 + (at >> scheme.length));
    expect(await it.authenticate(letters.join("") + spaces + credentials)).toBe(it.token);
  }
  expect(largest).toBe(1000);
});
