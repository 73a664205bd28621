/**
 * A client's promise that two requests are one.
 * @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
 */
export interface IdempotencyKey {
  /** Whose key it is: the SHA-256 of the token, so that two clients never meet. */
  readonly owner: string;
  /** 1–255 visible ASCII characters. */
  readonly key: string;
  /** What was asked for: two requests with one fingerprint are the same request. */
  readonly fingerprint: string;
}

/** A new record, or the one that the first request with this key made, as it was then. */
export interface CreateResult<Row> {
  readonly record: Row;
  readonly replayed: boolean;
}

/** How long an answer is kept and replayed. */
export const KEY_LIFETIME_MS = 24 * 60 * 60 * 1000;

/** The same value with the members of every object in one order, so that equal values give equal text. */
export function sortMembers(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(sortMembers);
  const members = value as Readonly<Record<string, unknown>>;
  // Without a prototype `__proto__` is a name like any other.
  const sorted: Record<string, unknown> = Object.create(null);
  for (const name of Object.keys(members).sort()) sorted[name] = sortMembers(members[name]);
  return sorted;
}

/** SHA-256, hexadecimal, of method, path and body as a JSON value. */
export function fingerprint(method: string, path: string, body: unknown): string {
  const request = `${method} ${path}\n${JSON.stringify(sortMembers(body))}`;
  return Bun.CryptoHasher.hash("sha256", request, "hex");
}
