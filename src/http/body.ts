/**
 * Request bodies. Authentication comes first, then the checks of the headers, the length, the JSON and the
 * schema.
 */
import { AppError, fail, failField } from "../error.ts";
import { createCollector } from "../garbage.ts";
import { parseJsonBytes } from "../json.ts";
import { LARGE_RECORD_BYTES } from "../record.ts";
import { createValidator, type Schema, type ValueOf } from "../schema.ts";
import { type InputSchema, inputSchema } from "./input.ts";
import { JSON_TYPE, PATCH_TYPE } from "./media-types.ts";
import type { PendingWrite, PendingWrites } from "./pending-writes.ts";

const MEDIA_TYPE = /^\s*([^\s;]+)\s*(?:;.*)?$/;
/** The name and the value of a media type parameter. The value may be a quoted string. @see RFC 9110 §5.6.6 */
const PARAMETER = /;\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)/g;

/** @param label e.g. `utf8`. @see https://encoding.spec.whatwg.org/#names-and-labels */
function isLabelOfUtf8(label: string): boolean {
  try {
    return new TextDecoder(label as Bun.Encoding).encoding === "utf-8";
  } catch {
    return false;
  }
}

/** @returns whether the charset of the media type is UTF-8, which is the default */
function isUtf8(mediaType: string): boolean {
  return [...mediaType.matchAll(PARAMETER)].every(([, name = "", value = ""]) => {
    const text = value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value;
    return name.toLowerCase() !== "charset" || isLabelOfUtf8(text);
  });
}

/** @throws {AppError} unsupported_media_type */
function requireJson(request: Request): void {
  if ((request.headers.get("content-encoding") ?? "identity").toLowerCase() !== "identity") {
    fail("unsupported_media_type", "the request body must not be compressed");
  }
  const header = request.headers.get("content-type");
  if (header === null || header === "") return;
  const type = MEDIA_TYPE.exec(header)?.[1]?.toLowerCase();
  const isPatch = type === PATCH_TYPE && request.method === "PATCH";
  if (type !== JSON_TYPE && !isPatch)
    fail(
      "unsupported_media_type",
      `the request body must be ${JSON_TYPE}: set the Content-Type header`,
    );
  if (header.includes(";") && !isUtf8(header))
    fail("unsupported_media_type", "the request body must be UTF-8");
}

/** Bytes that count for a body without a declared length, and the most that count for any other. */
const MAX_EXPECTED_BYTES = 2 ** 16;

/** @returns how many bytes of the body may arrive before it is read; 0 without a body */
export function expectedBytes(headers: Headers): number {
  const declared = headers.get("content-length");
  if (declared !== null) return Math.min(Number.parseInt(declared, 10), MAX_EXPECTED_BYTES);
  return headers.has("transfer-encoding") ? MAX_EXPECTED_BYTES : 0;
}

/**
 * Counts the body of a request that waits, because Bun receives it meanwhile.
 * @param tokenHash `null` while the token is looked up
 * @returns the result
 * @throws {AppError} unavailable if there is no room for the body
 */
export async function waitWithBody<Result>(
  pendingWrites: PendingWrites,
  result: Promise<Result>,
  headers: Headers,
  tokenHash: string | null,
): Promise<Result> {
  const bytes = expectedBytes(headers);
  if (bytes === 0) return result;
  // Its error must not be unhandled if there is no room for the body.
  result.catch(() => {});
  const waiting = pendingWrites.begin(tokenHash);
  try {
    waiting.addBytes(bytes);
    return await result;
  } finally {
    waiting.end();
  }
}

/** @throws {AppError} payload_too_large */
function requireLength(length: number, maxBytes: number): void {
  if (length <= maxBytes) return;
  fail("payload_too_large", `the request body must be at most ${maxBytes} bytes`);
}

/** @throws {AppError} payload_too_large, unavailable */
async function readChunks(
  request: Request,
  maxBytes: number,
  { addBytes }: PendingWrite,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of request.body ?? []) {
    length += chunk.byteLength;
    requireLength(length, maxBytes);
    addBytes(chunk.byteLength);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/**
 * Checks `Content-Type`, `Content-Encoding` and `Content-Length`, then reads the body.
 * @param write counts the bytes of the body
 * @returns the JSON value
 * @throws {AppError} unsupported_media_type, payload_too_large, unavailable, validation_failed
 */
export type ReadBody = (request: Request, write: PendingWrite) => Promise<unknown>;

/** @param maxBytes the limit; a larger `Content-Length` is rejected before the body is read */
export function createBodyReader(maxBytes: number): ReadBody {
  const collect = createCollector();

  /** A body without a declared length is counted while it is read. */
  function readBytes(request: Request, write: PendingWrite): Promise<Uint8Array> {
    const declared = request.headers.get("content-length");
    if (declared === null) return readChunks(request, maxBytes, write);
    // Bun joins repeated fields with commas, and rejects those that differ: `2, 2` is 2 (RFC 9110 §8.6).
    const length = Number.parseInt(declared, 10);
    requireLength(length, maxBytes);
    write.addBytes(length);
    return request.bytes();
  }

  return async (request, write) => {
    requireJson(request);
    let bytes: Uint8Array;
    try {
      bytes = await readBytes(request, write);
    } catch (error) {
      if (error instanceof AppError) throw error;
      // The client disconnected before it had sent the whole body, which is not a server error.
      failField("body", "format", "must be complete");
    }
    // Bodies that wait or are rejected do not count: each would delay all requests, and their clients can send many.
    if (bytes.byteLength > LARGE_RECORD_BYTES) collect(bytes.byteLength);
    return parseJsonBytes(bytes);
  };
}

/** The schema of a route whose request body is a JSON object. @param record see `createValidator` */
export function jsonBody<Of extends Schema>(schema: Of, record: Schema): InputSchema<ValueOf<Of>> {
  return inputSchema(schema, createValidator(schema, record));
}
