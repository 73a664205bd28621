/** Authentication and authorization of every route that is not public. @see RFC 6750 */
import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";
import { AppError, fail } from "../error.ts";
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
import { createHostCheck } from "./host.ts";
import { enforceRateLimit, type InvalidTokenLimiter, type RateLimiter } from "./rate-limit.ts";

interface SyncReads {
  token(hash: string): Token | null;
}

export interface TokenVerifierOptions {
  readonly tokens: TokenStore;
  /** `null` if tokens cannot be read synchronously. */
  readonly sync_reads: SyncReads | null;
  /** Accepted in addition to the stored tokens; `null` for none. */
  readonly api_token: string | null;
  readonly now: () => Date;
  readonly invalidTokenLimiter: InvalidTokenLimiter;
}

/** The header is the only place for a token. The case of the scheme does not matter (RFC 9110 §11.1). */
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

/** Upper bound of the hash cache. */
const MAX_HASHES = 1000;

/**
 * Finds the token of a request.
 * @param credentials the result of `credentialsOf`
 * @throws {AppError} unauthorised if there are no credentials
 * @throws {AppError} invalid_token if they belong to no token that is valid now
 * @throws {AppError} too_many_invalid_tokens instead, if the address of the request has sent too many of these
 */
export type VerifyToken = (credentials: string | undefined, request: Request) => Promise<Token>;

/** Like `VerifyToken`, but synchronous. */
export type VerifyTokenSync = (credentials: string | undefined, request: Request) => Token;

export interface TokenVerifier {
  readonly verifyToken: VerifyToken;
  /** `null` if tokens cannot be read synchronously. */
  readonly verifyTokenSync: VerifyTokenSync | null;
}

export function createTokenVerifier({
  tokens,
  sync_reads,
  api_token,
  now,
  invalidTokenLimiter,
}: TokenVerifierOptions): TokenVerifier {
  const environment_token = api_token === null ? null : environmentToken(api_token, now());
  /** The hashes of tokens that were valid when last used, by token. */
  const cached_hashes = new Map<string, string>();
  /** The minute in which the use of a token was last recorded, by hash. */
  const last_use_minutes = new Map<string, number>();

  function rejectToken(request: Request): never {
    const wait_s = invalidTokenLimiter(request);
    if (wait_s === 0) fail("invalid_token", "unauthorised");
    const message = "too many invalid tokens from this address";
    throw new AppError("too_many_invalid_tokens", message, [], wait_s);
  }

  /**
   * Returns the hash by which the store identifies the token.
   * @throws {AppError} invalid_token if the format is not that of a token, which saves a query
   */
  function hashOf(credentials: string, request: Request): string {
    const cached = cached_hashes.get(credentials);
    if (cached !== undefined) return cached;
    if (!hasTokenFormat(credentials)) rejectToken(request);
    return hashToken(credentials);
  }

  const environmentTokenOf = (hash: string) =>
    hash === environment_token?.hash ? environment_token : null;

  function recordUse({ hash, last_used_at }: Token, time: Date): void {
    const minute = minuteOf(time);
    if (last_use_minutes.get(hash) === minute) return;
    last_use_minutes.set(hash, minute);
    const used_at = truncateToMinute(time);
    // Not awaited: a read must not wait for the disk, or fail because of it.
    if (last_used_at !== used_at)
      tokens.touch(hash, used_at).catch(() => last_use_minutes.delete(hash));
  }

  /** @throws {AppError} invalid_token */
  function requireActive(credentials: string, token: Token | null, request: Request): Token {
    const time = now();
    if (token === null || !isActive(token, time)) {
      cached_hashes.delete(credentials);
      rejectToken(request);
    }
    if (!cached_hashes.has(credentials)) {
      if (cached_hashes.size >= MAX_HASHES) cached_hashes.clear();
      cached_hashes.set(credentials, token.hash);
    }
    if (token !== environment_token) recordUse(token, time);
    return token;
  }

  const verifyTokenSync =
    (reads: SyncReads): VerifyTokenSync =>
    (credentials, request) => {
      if (credentials === undefined) fail("unauthorised", "unauthorised");
      const hash = hashOf(credentials, request);
      return requireActive(credentials, environmentTokenOf(hash) ?? reads.token(hash), request);
    };

  return {
    async verifyToken(credentials, request) {
      if (credentials === undefined) fail("unauthorised", "unauthorised");
      const hash = hashOf(credentials, request);
      const token = environmentTokenOf(hash) ?? (await tokens.find(hash));
      return requireActive(credentials, token, request);
    },
    verifyTokenSync: sync_reads && verifyTokenSync(sync_reads),
  };
}

/**
 * Normalizes `Authorization` for the bearer plugin, which is sensitive to case and spaces, and removes it if it
 * is malformed. Use it before all routes: the plugin's hook is global, so that it precedes the other hooks from
 * the second group of routes on.
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

/** What a hook reads of a request after the bearer plugin. */
interface BearerContext {
  readonly bearer: string | undefined;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly request: Request;
}

/**
 * Requires a valid token, and adds `token` to the context. Needs `normalizeAuthorization`. The bearer plugin also
 * reads a query parameter, so its result is ignored unless the header is present.
 * @throws {AppError} unauthorised, invalid_token
 * @throws {AppError} invalid if `Host` is not valid
 */
export function authenticate({ verifyToken, verifyTokenSync }: TokenVerifier, cors: Cors | null) {
  const requireHost = createHostCheck();

  /** @returns `null` for a preflight, which a browser sends without a token. The response has CORS headers only */
  function verifyWith<Result>(
    verify: (credentials: string | undefined, request: Request) => Result,
    { bearer: credentials, headers, request }: BearerContext,
  ): Result | null {
    if (cors?.preflight(request)) return null;
    return verify(headers["authorization"] === undefined ? undefined : credentials, request);
  }

  // Without a promise if possible, which saves 5 % of the CPU time of the HTTP layer.
  const findToken =
    verifyTokenSync === null
      ? async ({ bearer: credentials, headers, request }: BearerContext) => {
          const token = await verifyWith(verifyToken, { bearer: credentials, headers, request });
          return { token };
        }
      : ({ bearer: credentials, headers, request }: BearerContext) => {
          const token = verifyWith(verifyTokenSync, { bearer: credentials, headers, request });
          return { token };
        };

  return new Elysia({ name: "authenticate" })
    .use(bearer())
    .derive({ as: "scoped" }, findToken)
    .onTransform({ as: "scoped" }, ({ headers }) => {
      // A separate hook, so that the token is logged even if `Host` is invalid.
      requireHost(headers["host"]);
    });
}

export type Authentication = ReturnType<typeof authenticate>;

/** Requires the scope that the method needs. @throws {AppError} read_only_token */
export function requireScope({ scope }: Token, method: string): void {
  if (scope === "read" && method !== "GET" && method !== "HEAD") {
    fail("read_only_token", "this token may only read");
  }
}

/**
 * Requires the scope that the method needs, and enforces the rate limit. For known routes only.
 * @throws {AppError} read_only_token, too_many_requests
 */
export function authorize(authentication: Authentication, rateLimiter: RateLimiter | null) {
  return new Elysia({ name: "authorize" })
    .use(authentication)
    .derive(({ token, request }) => {
      if (!token) fail("unauthorised", "unauthorised");
      requireScope(token, request.method);
      enforceRateLimit(rateLimiter, token);
      return { token_hash: token.hash };
    })
    .as("scoped");
}

export type Authorization = ReturnType<typeof authorize>;
