import { failField } from "../../base/error.ts";
import { fingerprint, type IdempotencyKey } from "../../domain/idempotency.ts";
import type { Call } from "./call.ts";

export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** @param path of the record, or of the list that it is added to. @throws {AppError} validation_failed */
export function idempotencyKeyOf(
  { request, token, body }: Pick<Call, "request" | "token" | "body">,
  path: string,
): IdempotencyKey | null {
  const key = request.headers.get("idempotency-key");
  if (key === null) return null;
  if (!IDEMPOTENCY_KEY.test(key)) {
    failField("Idempotency-Key", "format", "must be 1 to 255 visible ASCII characters");
  }
  return { owner: token.hash, key, fingerprint: fingerprint(request.method, path, body) };
}
