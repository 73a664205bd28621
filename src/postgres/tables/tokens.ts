import { fail } from "../../base/error.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import { type Token, type TokenStore, tokenColumns } from "../../domain/token.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session, Value } from "../server/connection.ts";
import { createLookup } from "./lookups.ts";

/** Lifetime of a cached token. Revocation by another replica takes effect within 5 seconds. */
const CACHE_TTL_MS = 4_000;
export const MAX_CACHED = 1000;
/** Maximum number of tokens in progress that are not in the cache: anybody can invent tokens of the right format. */
export const MAX_UNKNOWN = 1024;
/** Maximum number of statements that read them, each as many as wait: invented tokens leave the connections to other reads. */
const MAX_UNKNOWN_STATEMENTS = 2;

const all = `
  select ${tokenColumns}
  from tokens
  order by id
`;
const withHashes = `
  select ${tokenColumns}
  from tokens
  where hash = any($1::text[])
`;
const insert = `
  insert into tokens (hash, name, scope, created_at, expires_at)
  values ($1::text, $2::text, $3::text, $4::text, $5::text)
  on conflict do nothing
  returning ${tokenColumns}
`;
const revoke = `
  update tokens
  set revoked_at = $2::text
  where name = $1::text and revoked_at is null
  returning ${tokenColumns}
`;
// If several replicas record the same minute, only one of them writes.
const touch = `
  update tokens
  set last_used_at = $2::text
  where hash = $1::text and (last_used_at is null or last_used_at < $2::text)
`;

interface CachedToken {
  readonly token: MaybePromise<Token | null>;
  readonly untilMs: number;
}

/** Unknown tokens are not cached, so that requests with them cannot fill memory. @param nowMs only goes forward */
export function createTokenCache(
  read: (hash: string, isKnown: boolean) => Promise<Token | null>,
  nowMs = () => performance.now(),
) {
  /** Tokens that existed when they were last read, also those that must be read again. */
  const known = new Map<string, CachedToken>();
  /** Reads in progress of all others. */
  const unknown = new Map<string, CachedToken>();

  async function load(isKnown: boolean, hash: string, untilMs: number): Promise<Token | null> {
    if (!isKnown && unknown.size >= MAX_UNKNOWN) fail("unavailable", "too many unknown tokens");
    const token = await read(hash, isKnown);
    // The token may have been revoked since the read started.
    if (nowMs() >= untilMs) fail("unavailable", "the database is busy");
    return token;
  }

  function remember(hash: string, cached: CachedToken): void {
    const [oldest] = known.keys();
    if (known.size >= MAX_CACHED && oldest !== undefined) known.delete(oldest);
    known.set(hash, cached);
  }

  return {
    find(hash: string): MaybePromise<Token | null> {
      const tokens = known.has(hash) ? known : unknown;
      const found = tokens.get(hash);
      if (found !== undefined && nowMs() < found.untilMs) return found.token;
      // Measured before the read, because the result can be as old as the start of the read.
      const untilMs = nowMs() + CACHE_TTL_MS;
      const token = load(tokens === known, hash, untilMs);
      const cached = { token, untilMs };
      tokens.set(hash, cached);
      /** @returns whether the token has not been read again, and the cache not been cleared */
      const remove = () => tokens.get(hash) === cached && tokens.delete(hash);
      token.then(
        (result) => {
          if (remove() && result !== null) remember(hash, { token: result, untilMs });
        },
        () => {
          // A token that was known is not among the unknown ones when it is read again.
          if (remove() && tokens === known) remember(hash, { ...cached, untilMs: 0 });
        },
      );
      return token;
    },
    /** Call after each change. Results of reads that are in progress are not cached. */
    clear() {
      known.clear();
      unknown.clear();
    },
  };
}

export function createTokenStore({ db, now }: StoreContext): TokenStore {
  const find = (session: Session, hashes: readonly string[]) =>
    session.all<Token>(withHashes, hashes);
  const keyOf = ({ hash }: Token) => hash;
  const readKnown = createLookup(db, { find, keyOf });
  const bounds = { maxItems: MAX_UNKNOWN, maxBatches: MAX_UNKNOWN_STATEMENTS };
  const readUnknown = createLookup(db, { find, keyOf, ...bounds });
  const cache = createTokenCache((hash, isKnown) => (isKnown ? readKnown : readUnknown)(hash));

  const write = (statement: string, ...values: Value[]) =>
    db.run("write", (session) => session.first<Token>(statement, ...values));

  return {
    list: () => db.run("read", (session) => session.all<Token>(all)),
    find: cache.find,
    create: ({ hash, name, scope, expires_at }) =>
      write(insert, hash, name, scope, now().toISOString(), expires_at),
    revoke: (name) => write(revoke, name, now().toISOString()).finally(cache.clear),
    async touch(hash, usedAt) {
      await db.run("background", (session) => session.all(touch, hash, usedAt));
    },
  };
}
