import { failField } from "../../base/error.ts";
import { fingerprint, type IdempotencyKey } from "../../domain/idempotency.ts";
import type { EntityTags, Preconditions } from "../../domain/precondition.ts";
import type { Call } from "./call.ts";
import { parseInteger } from "./input.ts";

const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

export function requestIdOf(headers: Headers): string {
  const clientId = headers.get("x-request-id");
  return clientId !== null && REQUEST_ID.test(clientId) ? clientId : crypto.randomUUID();
}

/** With the trace id; a later version may have more. @see W3C Trace Context §3.2 */
const TRACE_PARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}(?:-.*)?$/;

export function traceIdOf(headers: Headers): string | undefined {
  const parent = headers.get("traceparent");
  return parent === null ? undefined : TRACE_PARENT.exec(parent)?.[1];
}

/** A DNS name or an IPv4 address, or an IPv6 address in brackets, each with an optional port. */
const HOST = /^(?:[\w-]+(?:\.[\w-]+)*\.?|\[([\da-f:.]+)\])(?::(\d*))?$/i;

function isHost(value: string): boolean {
  const [match, address, port = ""] = HOST.exec(value) ?? [];
  if (match === undefined || Number(port) > 65_535) return false;
  return address === undefined || URL.canParse(`http://[${address}]`);
}

/** Bun joins several `Host` fields with commas, which no valid value has, and returns 400 for none, except with HTTP/1.0. */
export function createHostCheck(): (value: string | null) => void {
  // Most requests have the same.
  let valid: string | null = null;
  return (value) => {
    if (value === valid || value === null) return;
    if (!isHost(value)) failField("Host", "format", "must be one valid host name");
    valid = value;
  };
}

export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** @param path of the record, or of the list that it is added to. @throws {AppError} validation_failed */
export function idempotencyKeyOf(
  { request, token, body }: Pick<Call, "request" | "token" | "body">,
  path: string,
): IdempotencyKey | null {
  const key = request.headers.get("idempotency-key");
  if (key === null) return null;
  if (!IDEMPOTENCY_KEY.test(key))
    failField("Idempotency-Key", "format", "must be 1 to 255 visible ASCII characters");
  return { owner: token.hash, key, fingerprint: fingerprint(request.method, path, body) };
}

/** @see RFC 9110 §8.8.3 */
const ENTITY_TAG = /(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"/g;
const TAG = ENTITY_TAG.source;
const MAX_TAGS = 100;
/** `*`, or a list of entity tags. The list may have empty elements (RFC 9110 §5.6.1.2). */
export const ENTITY_TAGS = new RegExp(
  `^(?:[ \\t]*\\*[ \\t]*|[ \\t,]*${TAG}(?:[ \\t]*,[ \\t,]*${TAG}){0,${MAX_TAGS - 1}}[ \\t,]*)$`,
);

function parseEntityTags(field: string, value: string | null): EntityTags | null {
  if (value === null) return null;
  const rule = `must be * or a list of at most ${MAX_TAGS} entity tags such as "1", with the quotes`;
  if (!ENTITY_TAGS.test(value)) failField(field, "format", rule);
  if (value.trim() === "*") return "*";
  return [...value.matchAll(ENTITY_TAG)].map(([, weak, tag = ""]) => ({
    version: parseInteger(tag),
    weak: weak !== undefined,
  }));
}

/** @returns `null` if the request has neither. @throws {AppError} validation_failed */
export function preconditionsOf({ headers }: Request): Preconditions | null {
  const ifMatch = headers.get("if-match");
  const ifNoneMatch = headers.get("if-none-match");
  // Most requests have neither, and this check is cheaper than an object.
  if (ifMatch === null && ifNoneMatch === null) return null;
  return {
    ifMatch: parseEntityTags("If-Match", ifMatch),
    ifNoneMatch: parseEntityTags("If-None-Match", ifNoneMatch),
  };
}
