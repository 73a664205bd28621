/** Authentication. @see RFC 6750 */
import { bearer } from "@elysiajs/bearer";
import { AppError, fail } from "../../base/error.ts";
import type { ExpiryLog } from "../../base/expiry.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import type { Config } from "../../domain/config.ts";
import type { Store } from "../../domain/store.ts";
import { hashToken, hasTokenFormat, stateOf, type Token } from "../../domain/token.ts";

/** The scheme in any case (RFC 9110 §11.1), any number of spaces, and one word. */
const CREDENTIALS = /^bearer +([^\s,]+) *$/i;

type DeriveBearer = (context: object) => { readonly bearer: string | undefined };

/** The plugin alone would also accept a token in the query, `Bearerx…`, and several words, and reject `bearer …`. */
function createTokenExtractor() {
  // Elysia's type says that hooks return nothing, but what this one returns is added to the context.
  const hook = bearer().event.transform?.at(0)?.fn as DeriveBearer | undefined;
  if (hook === undefined) throw new Error("the bearer plugin has no hook");
  return (authorization: string): string | null => {
    const [, word] = CREDENTIALS.exec(authorization) ?? [];
    if (word === undefined) return null;
    return hook({ headers: { authorization: `Bearer ${word}` }, query: {} }).bearer ?? null;
  };
}

const MINUTE_MS = 60_000;

const MAX_HASHES = 1000;
const MAX_HEADER_LENGTH = 64;

/** Neither a read-only server nor a standby records the use of tokens. */
export function createAuthenticator(
  storeNow: () => Pick<Store, "secondsBehind" | "tokens">,
  { apiToken, readOnly }: Pick<Config, "apiToken" | "readOnly">,
  now: () => Date,
  expiry: Pick<ExpiryLog, "note">,
) {
  const extractToken = createTokenExtractor();
  const environment: Token | null =
    apiToken === null
      ? null
      : {
          hash: hashToken(apiToken),
          name: "API_TOKEN",
          scope: "write",
          created_at: now().toISOString(),
          expires_at: null,
          last_used_at: null,
          revoked_at: null,
        };
  /** The hashes of tokens that were valid when last used, by `Authorization` header. */
  const cachedHashes = new Map<string, string>();
  /** The minute in which the use of a token was last recorded, by hash. */
  const lastUseMinutes = new Map<string, number>();

  function hashOf(authorization: string): string {
    const credentials = extractToken(authorization);
    if (credentials === null) fail("unauthorised", authorization === "" ? "missing" : "malformed");
    // It saves a query.
    if (!hasTokenFormat(credentials)) fail("invalid_token", "malformed");
    return hashToken(credentials);
  }

  function noteUse(token: Token, time: Date): void {
    const { hash, name, created_at, expires_at, last_used_at } = token;
    const minute = Math.floor(time.getTime() / MINUTE_MS);
    if (lastUseMinutes.get(hash) === minute) return;
    lastUseMinutes.set(hash, minute);
    if (expires_at !== null)
      expiry.note(name, { startMs: Date.parse(created_at), endMs: Date.parse(expires_at) });
    const store = storeNow();
    if (readOnly || store.secondsBehind() !== null) return;
    const usedAt = new Date(minute * MINUTE_MS).toISOString();
    // Not awaited: a read must not wait for the disk, or fail because of it.
    if (last_used_at !== usedAt)
      store.tokens.touch(hash, usedAt).catch(() => lastUseMinutes.delete(hash));
  }

  function requireActive(authorization: string, token: Token | null): Token {
    const time = now();
    const state = token === null ? "unknown" : stateOf(token, time);
    if (token === null || state !== "valid") {
      cachedHashes.delete(authorization);
      throw new AppError("invalid_token", state, { token: token?.name });
    }
    if (authorization.length <= MAX_HEADER_LENGTH && !cachedHashes.has(authorization)) {
      if (cachedHashes.size >= MAX_HASHES) cachedHashes.clear();
      cachedHashes.set(authorization, token.hash);
    }
    if (token !== environment) noteUse(token, time);
    return token;
  }

  /**
   * @param authorization the header field; empty for none
   * @throws {AppError} unauthorised without a token, with the reason for the log as its message; invalid_token, with its name
   */
  function authenticate(authorization: string): MaybePromise<Token> {
    const hash = cachedHashes.get(authorization) ?? hashOf(authorization);
    const found = hash === environment?.hash ? environment : storeNow().tokens.find(hash);
    return found instanceof Promise
      ? found.then((token) => requireActive(authorization, token))
      : requireActive(authorization, found);
  }

  return {
    authenticate,
    /** @returns whose header it is if its token was valid when last used; `null` if that is not known */
    clientOf: (authorization: string) => cachedHashes.get(authorization) ?? null,
  };
}
