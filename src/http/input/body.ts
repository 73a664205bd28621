import { AppError, fail, failField } from "../../base/error.ts";
import { parseJsonBytes } from "../../base/json.ts";
import type { Schema, ValueOf } from "../../base/schema.ts";
import { createValidator } from "../../base/validator.ts";
import type { ClientId } from "../../domain/token.ts";
import type { ReserveWrite } from "../limits/memory.ts";
import { type InputSchema, JSON_TYPE, PATCH_TYPE } from "./input.ts";

const MEDIA_TYPE = /^\s*([^\s;]+)\s*(?:;.*)?$/;
/** The name and the value of a media type parameter. The value may be a quoted string. @see RFC 9110 §5.6.6 */
const PARAMETER = /;\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)/g;

/** The labels of UTF-8. @see https://encoding.spec.whatwg.org/#names-and-labels */
const UTF_8 = /^\s*(?:utf-?8|unicode-1-1-utf-8|unicode11utf8|(?:x-)?unicode20utf8)\s*$/i;

function isUtf8(mediaType: string): boolean {
  return [...mediaType.matchAll(PARAMETER)].every(([, name = "", value = ""]) => {
    const text = value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value;
    return name.toLowerCase() !== "charset" || UTF_8.test(text);
  });
}

function requireJson(request: Request): void {
  if ((request.headers.get("content-encoding") ?? "identity").toLowerCase() !== "identity")
    fail("unsupported_media_type", "the request body must not be compressed");
  const header = request.headers.get("content-type");
  if (header === null || header === "" || header === JSON_TYPE) return;
  const type = MEDIA_TYPE.exec(header)?.[1]?.toLowerCase();
  const isPatch = type === PATCH_TYPE && request.method === "PATCH";
  if (type !== JSON_TYPE && !isPatch) fail("unsupported_media_type");
  if (header.includes(";") && !isUtf8(header))
    fail("unsupported_media_type", "the request body must be UTF-8");
}

const MAX_BODY_BYTES = 2 ** 16;
/** Maximum number of its chunks. One takes as much time as thousands of bytes. */
const MAX_CHUNKS = 2 ** 10;
/** The error of a body that is not read to its end, so that its connection is closed. */
export const UNREAD = `the request body must have at most ${MAX_CHUNKS} chunks: send larger ones`;

/** @returns an upper bound of the body; for one in chunks, a guess until it arrives; 0 without a body */
export function expectedBytes(headers: Headers): number {
  const declared = headers.get("content-length");
  // Bun joins repeated fields with commas, and rejects those that differ: `2, 2` is 2 (RFC 9110 §8.6).
  if (declared !== null) return Math.min(Number.parseInt(declared, 10), MAX_BODY_BYTES);
  return headers.has("transfer-encoding") ? 2 ** 12 : 0;
}

/** @param onBytes called with the number of bytes received, for a body in chunks. It can throw to stop */
function readBytes(request: Request, onBytes: (bytes: number) => void): Promise<Uint8Array> {
  const declared = Number.parseInt(request.headers.get("content-length") ?? "", 10);
  return declared <= MAX_BODY_BYTES ? request.bytes() : readChunks(request, declared, onBytes);
}

async function readChunks(request: Request, declared: number, onBytes: (bytes: number) => void) {
  if (declared > MAX_BODY_BYTES) {
    await request.body?.cancel();
    fail("payload_too_large");
  }
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of request.body ?? []) {
    if (chunks.push(chunk) > MAX_CHUNKS)
      throw new AppError("payload_too_large", UNREAD, { cause: UNREAD });
    length += chunk.byteLength;
    if (length > MAX_BODY_BYTES) fail("payload_too_large");
    onBytes(length);
  }
  return Buffer.concat(chunks);
}

/**
 * Starts to receive a body, of which Bun would keep up to 2 MB until it is read. It counts as that of its client until
 * `release`, or of another one after `assign`. After `release`, nothing counts any more.
 * @throws {AppError} unavailable if there is no memory for it, and so do `bytes` and `assign`
 */
export function receive(reserveWrite: ReserveWrite, request: Request, client: ClientId | null) {
  let [owner, size] = [client, expectedBytes(request.headers)];
  let free: (() => void) | null = reserveWrite(owner, size);
  function release(): void {
    free?.();
    free = null;
  }
  function assign(next: ClientId | null): void {
    if (free === null) return;
    release();
    owner = next;
    free = reserveWrite(owner, size);
  }
  const bytes = readBytes(request, (received) => {
    if (received <= size) return;
    size = received;
    assign(owner);
  });
  // It is read later, or not at all.
  bytes.catch(() => {});
  return { bytes, assign, release };
}

/** @throws {AppError} unsupported_media_type, payload_too_large, validation_failed */
export async function readBody(request: Request, received: Promise<Uint8Array>): Promise<unknown> {
  requireJson(request);
  let bytes: Uint8Array;
  try {
    bytes = await received;
  } catch (error) {
    if (error instanceof AppError) throw error;
    // The client disconnected before it had sent the whole body, which is not a server error.
    failField("body", "format", "must be complete");
  }
  return parseJsonBytes(bytes);
}

export function jsonBody<Of extends Schema>(schema: Of, record: Schema): InputSchema<ValueOf<Of>> {
  return { schema, parse: createValidator(schema, record) };
}
