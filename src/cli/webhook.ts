/** Standard Webhooks 1.0. @see https://github.com/standard-webhooks/standard-webhooks */
import { readSecretFile } from "../base/secret.ts";
import type { Change } from "../domain/change.ts";

/** Two while one replaces the other. Each is of 24 to 64 bytes. */
const SECRETS = /^whsec_[A-Za-z0-9+/]{32,86}={0,2}(?:\s+whsec_[A-Za-z0-9+/]{32,86}={0,2})?$/;

/** @throws {AppError} operator */
export function readKeys(flag: string, path: string): readonly Buffer[] {
  const expected = "one or two lines, each of whsec_ and the base64 of 24 to 64 bytes";
  const secrets = readSecretFile(flag, path, SECRETS, expected).split(/\s+/);
  return secrets.map((secret) => Buffer.from(secret.slice("whsec_".length), "base64"));
}

/** @param id the same for each attempt, without a dot. @param nowMs the time of this attempt: receivers reject old ones */
export function signedMessage(keys: readonly Buffer[], id: string, nowMs: number, change: Change) {
  const { type, created_at } = change;
  const body = JSON.stringify({ type, timestamp: created_at, data: change });
  const timestamp = `${Math.floor(nowMs / 1000)}`;
  const sign = (key: Buffer) =>
    new Bun.CryptoHasher("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  const headers = {
    "content-type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": keys.map((key) => `v1,${sign(key)}`).join(" "),
  };
  return { method: "POST", headers, body };
}
