import { fail } from "../base/error.ts";
import { sortMembers } from "../base/json.ts";
import type { RecordText } from "./record.ts";
import type { ClientId } from "./token.ts";

/** @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ */
export interface IdempotencyKey {
  /** The keys of two clients never collide. */
  readonly owner: ClientId;
  /** 1–255 visible ASCII characters. */
  readonly key: string;
  /** Two requests with the same fingerprint are the same request. @see fingerprint */
  readonly fingerprint: string;
}

/** @throws {AppError} idempotency_key_reused if the first request with the key was another one */
export function replay<Row>(
  stored: Pick<IdempotencyKey, "fingerprint"> & { readonly record: string },
  key: IdempotencyKey | null,
): RecordText<Row> {
  if (stored.fingerprint !== key?.fingerprint) fail("idempotency_key_reused");
  const { id, version } = JSON.parse(stored.record);
  return { id, version, json: stored.record, replayed: true };
}

/** The shortest time that a response is stored and replayed: the cleanup deletes its key later. */
export const KEY_LIFETIME_MS = 24 * 60 * 60 * 1000;

/** @returns the hexadecimal SHA-256 of method, path and body, which is compared as a JSON value */
export function fingerprint(method: string, path: string, body: unknown): string {
  const request = `${method} ${path}\n${JSON.stringify(sortMembers(body))}`;
  return Bun.CryptoHasher.hash("sha256", request, "hex");
}
