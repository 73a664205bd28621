import { expect, test } from "bun:test";
import { createIdentify } from "../../src/http/auth.ts";
import { hashToken, newToken, type TokenStore } from "../../src/token.ts";
import { refusalOf, rejectionOf } from "../refusal.ts";

test("`createIdentify` asks the store when it could be a token, and only then", async () => {
  const asked: string[] = [];
  const token = (hash: string) => {
    asked.push(hash);
    return null;
  };
  const tokens = { find: async (hash: string) => token(hash) } as unknown as TokenStore;
  const { identify, identifyAtOnce } = createIdentify({
    tokens,
    api_token: null,
    now: () => new Date(),
  });
  const identifyNow = identifyAtOnce({ token, user: () => null, order: () => null });
  const [unknown, typo] = [newToken(), newToken().slice(1)];
  for (const credentials of [undefined, "", "ab", typo, unknown]) {
    const code = credentials === undefined ? "unauthorised" : "invalid_token";
    refusalOf(() => identifyNow(credentials), code, "unauthorised");
    await rejectionOf(identify(credentials), code, "unauthorised");
  }
  expect(asked).toEqual([hashToken(unknown), hashToken(unknown)]);
});
