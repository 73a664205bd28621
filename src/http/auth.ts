/** Who may do what: the guard of every route but the public ones. @see RFC 6750 */
import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { ReadsAtOnce } from "../store.ts";
import {
  hashToken,
  isActive,
  isTokenShaped,
  minuteOf,
  type Token,
  type TokenStore,
  usedAt,
} from "../token.ts";
import type { Cors } from "./cors.ts";
import { requireHost } from "./host.ts";
import type { Take } from "./rate.ts";

export interface IdentifyOptions {
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
export type Identify = (credentials: string | undefined) => Promise<Token>;

/** As `Identify`, done by the return. */
export type IdentifyAtOnce = (credentials: string | undefined) => Token;

export interface Identification {
  readonly identify: Identify;
  readonly identifyAtOnce: (reads: Pick<ReadsAtOnce, "token">) => IdentifyAtOnce;
}

export function createIdentify({ tokens, api_token, now }: IdentifyOptions): Identification {
  const environment_token = api_token === null ? null : environmentToken(api_token, now());
  /** The hash of each token that was valid when last seen: it need not be computed each time. */
  const hashes = new Map<string, string>();
  /** The minute that each token's use was last noted in, by hash: once is enough. */
  const touched = new Map<string, number>();

  /**
   * What the store knows a token by.
   * @throws {AppError} invalid_token when it cannot be one: then the store need not be asked
   */
  function hashOf(credentials: string): string {
    const known = hashes.get(credentials);
    if (known !== undefined) return known;
    if (!isTokenShaped(credentials)) fail("invalid_token", "unauthorised");
    return hashToken(credentials);
  }

  const ownTokenOf = (hash: string) =>
    hash === environment_token?.hash ? environment_token : null;

  function note({ hash, last_used_at }: Token, time: Date): void {
    const minute = minuteOf(time);
    if (touched.get(hash) === minute) return;
    touched.set(hash, minute);
    const used_at = usedAt(time);
    // Not waited for: a read must not wait for the disk, nor fail with it.
    if (last_used_at !== used_at) tokens.touch(hash, used_at).catch(() => touched.delete(hash));
  }

  /** @throws {AppError} invalid_token */
  function admit(credentials: string, token: Token | null): Token {
    const time = now();
    if (token === null || !isActive(token, time)) {
      hashes.delete(credentials);
      fail("invalid_token", "unauthorised");
    }
    if (!hashes.has(credentials)) {
      if (hashes.size >= MAX_HASHES) hashes.clear();
      hashes.set(credentials, token.hash);
    }
    if (token !== environment_token) note(token, time);
    return token;
  }

  return {
    async identify(credentials) {
      if (credentials === undefined) fail("unauthorised", "unauthorised");
      const hash = hashOf(credentials);
      return admit(credentials, ownTokenOf(hash) ?? (await tokens.find(hash)));
    },
    identifyAtOnce: (reads) => (credentials) => {
      if (credentials === undefined) fail("unauthorised", "unauthorised");
      const hash = hashOf(credentials);
      return admit(credentials, ownTokenOf(hash) ?? reads.token(hash));
    },
  };
}

/** @throws {AppError} too_many_requests */
export function spend(take: Take, token: Token): void {
  if (!take(token.hash)) fail("too_many_requests", "too many requests with this token");
}

/**
 * Brings the header into the one spelling that the bearer plugin knows, or takes it away where it holds no
 * token. For an app to use before all routes: the plugin's hook is global, and from the second group of
 * routes on comes before those of the guard.
 */
export function oneSpelling() {
  return new Elysia({ name: "one spelling" }).onTransform({ as: "global" }, ({ headers }) => {
    const credentials = credentialsOf(headers["authorization"]);
    if (credentials === undefined) delete headers["authorization"];
    else headers["authorization"] = `Bearer ${credentials}`;
  });
}

/**
 * Lets valid tokens through and gives the routes `token`. It needs `oneSpelling`: without, tokens in other
 * spellings are refused. The plugin also takes a query parameter: so it is believed only where there is a header.
 * @throws {AppError} unauthorised, invalid_token
 * @throws {AppError} invalid if `Host` is not valid
 */
export function createGuard(identify: Identify, cors: Cors | null) {
  return new Elysia({ name: "guard" })
    .use(bearer())
    .derive({ as: "scoped" }, async ({ bearer: credentials, headers, request }) => {
      // A browser asks without a token, and is told nothing but what it may ask.
      if (cors?.preflight(request)) return { token: null as Token | null };
      const presented = headers["authorization"] === undefined ? undefined : credentials;
      return { token: (await identify(presented)) as Token | null };
    })
    .onTransform({ as: "scoped" }, ({ headers }) => {
      // A hook of its own, so that the log has the token when `Host` is not valid.
      requireHost(headers["host"]);
    });
}

export type Guard = ReturnType<typeof createGuard>;

/**
 * What a known route asks beyond a valid token: the scope of its method, and the rate.
 * @throws {AppError} insufficient_scope, too_many_requests
 */
export function createGate(guard: Guard, take: Take) {
  return new Elysia({ name: "gate" })
    .use(guard)
    .derive(({ token, request }) => {
      if (!token) fail("unauthorised", "unauthorised");
      const { method } = request;
      if (token.scope === "read" && method !== "GET" && method !== "HEAD") {
        fail("insufficient_scope", "this token may only read");
      }
      spend(take, token);
      return { owner: token.hash };
    })
    .as("scoped");
}

export type Gate = ReturnType<typeof createGate>;
