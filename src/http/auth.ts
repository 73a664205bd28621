/** Who may do what: the guard of every route but the public ones. @see RFC 6750 */
import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { SyncReads } from "../store.ts";
import {
  hashToken,
  hasTokenFormat,
  isActive,
  minuteOf,
  type Token,
  type TokenStore,
  truncateToMinute,
} from "../token.ts";
import type { Cors } from "./cors.ts";
import { requireHost } from "./host.ts";
import type { RateLimiter } from "./rate-limit.ts";

export interface TokenVerifierOptions {
  readonly tokens: TokenStore;
  /** Accepted beside the stored ones; `null` for none. */
  readonly api_token: string | null;
  readonly now: () => Date;
}

/** The only place a token may stand in; the scheme's case does not matter (RFC 9110 §11.1). */
const CREDENTIALS = /^Bearer +([^\s,]+) *$/i;

/** @param authorization the header field */
export function credentialsOf(authorization: string | null | undefined): string | undefined {
  return CREDENTIALS.exec(authorization ?? "")?.[1];
}

function environmentToken(api_token: string, now: Date): Token {
  return {
    hash: hashToken(api_token),
    name: "API_TOKEN",
    scope: "write",
    created_at: now.toISOString(),
    expires_at: null,
    last_used_at: null,
    revoked_at: null,
  };
}

/** How many tokens' hashes are kept at hand. */
const MAX_HASHES = 1000;

/**
 * Whose credentials these are.
 * @param credentials as `credentialsOf` gives them
 * @throws {AppError} unauthorised when there are none
 * @throws {AppError} invalid_token when no token that is valid now has them
 */
export type VerifyToken = (credentials: string | undefined) => Promise<Token>;

/** As `VerifyToken`, done by the return. */
export type VerifyTokenSync = (credentials: string | undefined) => Token;

export interface TokenVerifier {
  readonly verifyToken: VerifyToken;
  readonly verifyTokenSync: (reads: Pick<SyncReads, "token">) => VerifyTokenSync;
}

export function createTokenVerifier({
  tokens,
  api_token,
  now,
}: TokenVerifierOptions): TokenVerifier {
  const environment_token = api_token === null ? null : environmentToken(api_token, now());
  /** The hash of each token that was valid when last seen: it need not be computed each time. */
  const cached_hashes = new Map<string, string>();
  /** The minute that each token's use was last noted in, by hash: once is enough. */
  const last_use_minutes = new Map<string, number>();

  /**
   * What the store knows a token by.
   * @throws {AppError} invalid_token when it cannot be one: then the store need not be asked
   */
  function hashOf(credentials: string): string {
    const cached = cached_hashes.get(credentials);
    if (cached !== undefined) return cached;
    if (!hasTokenFormat(credentials)) fail("invalid_token", "unauthorised");
    return hashToken(credentials);
  }

  const environmentTokenOf = (hash: string) =>
    hash === environment_token?.hash ? environment_token : null;

  function recordUse({ hash, last_used_at }: Token, time: Date): void {
    const minute = minuteOf(time);
    if (last_use_minutes.get(hash) === minute) return;
    last_use_minutes.set(hash, minute);
    const used_at = truncateToMinute(time);
    // Not waited for: a read must not wait for the disk, nor fail with it.
    if (last_used_at !== used_at)
      tokens.touch(hash, used_at).catch(() => last_use_minutes.delete(hash));
  }

  /** @throws {AppError} invalid_token */
  function requireActive(credentials: string, token: Token | null): Token {
    const time = now();
    if (token === null || !isActive(token, time)) {
      cached_hashes.delete(credentials);
      fail("invalid_token", "unauthorised");
    }
    if (!cached_hashes.has(credentials)) {
      if (cached_hashes.size >= MAX_HASHES) cached_hashes.clear();
      cached_hashes.set(credentials, token.hash);
    }
    if (token !== environment_token) recordUse(token, time);
    return token;
  }

  return {
    async verifyToken(credentials) {
      if (credentials === undefined) fail("unauthorised", "unauthorised");
      const hash = hashOf(credentials);
      return requireActive(credentials, environmentTokenOf(hash) ?? (await tokens.find(hash)));
    },
    verifyTokenSync: (reads) => (credentials) => {
      if (credentials === undefined) fail("unauthorised", "unauthorised");
      const hash = hashOf(credentials);
      return requireActive(credentials, environmentTokenOf(hash) ?? reads.token(hash));
    },
  };
}

/** @throws {AppError} too_many_requests */
export function enforceRateLimit(rateLimiter: RateLimiter, token: Token): void {
  if (!rateLimiter(token.hash)) fail("too_many_requests", "too many requests with this token");
}

/**
 * Brings the header into the one spelling that the bearer plugin knows, or takes it away where it holds no
 * token. For an app to use before all routes: the plugin's hook is global, and from the second group of
 * routes on comes before those of the guard.
 */
export function normalizeAuthorization() {
  return new Elysia({ name: "normalize authorization" }).onTransform(
    { as: "global" },
    ({ headers }) => {
      const credentials = credentialsOf(headers["authorization"]);
      if (credentials === undefined) delete headers["authorization"];
      else headers["authorization"] = `Bearer ${credentials}`;
    },
  );
}

/**
 * Lets valid tokens through and gives the routes `token`. It needs `normalizeAuthorization`: without, tokens in other
 * spellings are refused. The plugin also takes a query parameter: so it is believed only where there is a header.
 * @throws {AppError} unauthorised, invalid_token
 * @throws {AppError} invalid if `Host` is not valid
 */
export function authenticate(verifyToken: VerifyToken, cors: Cors | null) {
  return new Elysia({ name: "authenticate" })
    .use(bearer())
    .derive({ as: "scoped" }, async ({ bearer: credentials, headers, request }) => {
      // A browser asks without a token, and is told nothing but what it may ask.
      if (cors?.preflight(request)) return { token: null as Token | null };
      const presented = headers["authorization"] === undefined ? undefined : credentials;
      return { token: (await verifyToken(presented)) as Token | null };
    })
    .onTransform({ as: "scoped" }, ({ headers }) => {
      // A hook of its own, so that the log has the token when `Host` is not valid.
      requireHost(headers["host"]);
    });
}

export type Authentication = ReturnType<typeof authenticate>;

/**
 * What a known route asks beyond a valid token: the scope of its method, and the rate.
 * @throws {AppError} read_only_token, too_many_requests
 */
export function authorize(authentication: Authentication, rateLimiter: RateLimiter) {
  return new Elysia({ name: "authorize" })
    .use(authentication)
    .derive(({ token, request }) => {
      if (!token) fail("unauthorised", "unauthorised");
      const { method } = request;
      if (token.scope === "read" && method !== "GET" && method !== "HEAD") {
        fail("read_only_token", "this token may only read");
      }
      enforceRateLimit(rateLimiter, token);
      return { token_hash: token.hash };
    })
    .as("scoped");
}

export type Authorization = ReturnType<typeof authorize>;
