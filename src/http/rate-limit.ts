/** Limits requests per token, and invalid tokens per address. */
import { fail } from "../error.ts";
import type { Token } from "../token.ts";

export interface RateLimiter {
  /** Counts a request of a token. @returns whether it is within the limit */
  readonly allow: (token_hash: string) => boolean;
  /**
   * @returns the headers that tell a client its limit, as of its last request
   * @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
   */
  readonly headers: (token_hash: string) => Readonly<Record<string, string>>;
}

/**
 * A token bucket for each API token: bursts of up to `per_second` requests, refilled at the same rate.
 * @param per_second 0 for no limit
 * @returns `null` if there is no limit
 */
export function createRateLimiter(
  per_second: number,
  now_ms = () => performance.now(),
): RateLimiter | null {
  if (per_second === 0) return null;
  const buckets = new Map<string, { available: number; refilled_ms: number }>();
  const policy = `"token";q=${per_second};w=1`;
  return {
    allow(token_hash) {
      const time_ms = now_ms();
      const bucket = buckets.get(token_hash) ?? { available: per_second, refilled_ms: time_ms };
      buckets.set(token_hash, bucket);
      const gained = ((time_ms - bucket.refilled_ms) / 1000) * per_second;
      bucket.available = Math.min(per_second, bucket.available + gained);
      bucket.refilled_ms = time_ms;
      if (bucket.available < 1) return false;
      bucket.available -= 1;
      return true;
    },
    headers(token_hash) {
      const remaining = Math.floor(buckets.get(token_hash)?.available ?? per_second);
      // A bucket is full again after a second at most.
      const limit = `"token";r=${remaining}${remaining < per_second ? ";t=1" : ""}`;
      return { "ratelimit-policy": policy, ratelimit: limit };
    },
  };
}

/** @throws {AppError} too_many_requests */
export function enforceRateLimit(rateLimiter: RateLimiter | null, { hash }: Token): void {
  if (rateLimiter?.allow(hash) === false) {
    fail("too_many_requests", "too many requests with this token");
  }
}

/** @returns the address of the client; `null` if it has disconnected */
export type FindAddress = (request: Request) => string | null;

/** The server that has the connection of a request. */
type Connections = Pick<Bun.Server<unknown>, "requestIP"> | null;

/** An IP address, which may have a port: `192.0.2.1:80`, `[2001:db8::1]:80`. */
const ADDRESS = /^(?:\[([^\]]+)\]|(\d{1,3}(?:\.\d{1,3}){3}))(?::\d+)?$/;

/** @returns the IP address in the last entry of the header; `null` if there is none */
function forwardedAddress(value: string | null): string | null {
  // The nearest proxy appends its client to the list. Everything before that is the client's own claim.
  const entry = value?.split(",").at(-1)?.trim().toLowerCase() ?? "";
  const [, in_brackets, ipv4] = ADDRESS.exec(entry) ?? [];
  if (ipv4 !== undefined) return URL.canParse(`http://${ipv4}`) ? ipv4 : null;
  const ipv6 = in_brackets ?? entry;
  return URL.canParse(`http://[${ipv6}]`) ? ipv6 : null;
}

/**
 * @param header of the proxy, which has the address of the client; `null` to use the connection. The connection also
 * counts if the header has no address
 * @param getServer the server starts after the app is composed
 */
export function createAddressFinder(
  header: string | null,
  getServer: () => Connections,
): FindAddress {
  return (request) => {
    const forwarded = header === null ? null : forwardedAddress(request.headers.get(header));
    return forwarded ?? getServer()?.requestIP(request)?.address ?? null;
  };
}

/** Groups of 16 bits in the prefix of an IPv6 network: a host can use any address of its /64. */
const NETWORK_GROUPS = 4;

/** @returns the address, or the network of an IPv6 address */
function networkOf(address: string): string {
  const host = URL.parse(`http://[${address.split("%")[0]}]`)?.hostname;
  if (host === undefined) return address;
  const [left = [], right = []] = host
    .slice(1, -1)
    .split("::")
    .map((part) => part.split(":").filter((group) => group !== ""));
  const zeros = Array.from({ length: 8 - left.length - right.length }, () => "0");
  const groups = [...left, ...zeros, ...right];
  // An IPv4 address on a socket for IPv6: ::ffff:192.0.2.1.
  const is_ipv4 = groups.slice(0, 6).join() === "0,0,0,0,0,ffff";
  return (is_ipv4 ? groups : groups.slice(0, NETWORK_GROUPS)).join(":");
}

/** Upper bound of the addresses that are counted at the same time. */
const MAX_ADDRESSES = 100_000;
const MINUTE_MS = 60_000;

/**
 * Counts an invalid token in a request.
 * @returns the seconds until its address is within the limit again; 0 if it is
 */
export type InvalidTokenLimiter = (request: Request) => number;

/**
 * Limits invalid tokens per IPv4 address or IPv6 /64 network. The minute begins with the first invalid token. Valid tokens
 * are never limited here, because many clients can share an address.
 * @param per_minute 0 for no limit
 */
export function createInvalidTokenLimiter(
  per_minute: number,
  findAddress: FindAddress,
  now_ms = () => performance.now(),
): InvalidTokenLimiter {
  if (per_minute === 0) return () => 0;
  const addresses = new Map<string, { invalid_tokens: number; readonly since_ms: number }>();
  return (request) => {
    const found = findAddress(request);
    if (found === null) return 0;
    const address = networkOf(found);
    const time_ms = now_ms();
    let counted = addresses.get(address);
    if (counted === undefined || time_ms - counted.since_ms >= MINUTE_MS) {
      if (addresses.size >= MAX_ADDRESSES) addresses.clear();
      counted = { invalid_tokens: 0, since_ms: time_ms };
      addresses.set(address, counted);
    }
    counted.invalid_tokens += 1;
    if (counted.invalid_tokens <= per_minute) return 0;
    return Math.ceil((counted.since_ms + MINUTE_MS - time_ms) / 1000);
  };
}
