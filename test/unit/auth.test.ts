import { expect, test } from "bun:test";
import { createIdentify } from "../../src/http/auth.ts";
import { hashToken, newToken, type TokenStore } from "../../src/token.ts";
import { refusalOf } from "../refusal.ts";

test("`createIdentify` asks the store when it could be a token, and only then", () => {
  const asked: string[] = [];
  const find = (hash: string) => {
    asked.push(hash);
    return null;
  };
  const tokens = { find } as unknown as TokenStore;
  const identify = createIdentify({ tokens, api_token: null, now: () => new Date() });
  const [unknown, typo] = [newToken(), newToken().slice(1)];
  for (const credentials of [undefined, "", "ab", typo, unknown]) {
    const code = credentials === undefined ? "unauthorised" : "invalid_token";
    refusalOf(() => identify(credentials), code, "unauthorised");
  }
  expect(asked).toEqual([hashToken(unknown)]);
});
