/**
 * Request bodies. Authentication comes first, then the checks of the headers, the length, the JSON and the
 * schema.
 */
import { AppError, fail, failField } from "../error.ts";
import { parseJson } from "../json.ts";
import { createValidator, type Schema, type ValueOf } from "../schema.ts";
import { type InputSchema, inputSchema } from "./input.ts";
import { JSON_TYPE, PATCH_TYPE } from "./media-types.ts";

const MEDIA_TYPE = /^\s*([^\s;]+)\s*(?:;.*)?$/;
/** The name and the value of a media type parameter. The value may be a quoted string. @see RFC 9110 §5.6.6 */
const PARAMETER = /;\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)/g;

/** @returns whether the charset of the media type is UTF-8, which is the default */
function isUtf8(mediaType: string): boolean {
  return [...mediaType.matchAll(PARAMETER)].every(([, name = "", value = ""]) => {
    const text = value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value;
    return name.toLowerCase() !== "charset" || text.toLowerCase() === "utf-8";
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

/** @throws {AppError} payload_too_large */
function requireLength(length: number, maxBytes: number): void {
  if (length <= maxBytes) return;
  fail("payload_too_large", `the request body must be at most ${maxBytes} bytes`);
}

/** @throws {AppError} payload_too_large */
async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  if (request.headers.has("content-length")) return request.bytes();
  // A chunked body has no declared length, so it is counted while it is read.
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of request.body ?? []) {
    length += chunk.byteLength;
    requireLength(length, maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The client disconnected before it had sent the whole body, which is not a server error. */
function failIncomplete(error: unknown): never {
  if (error instanceof AppError) throw error;
  failField("body", "must be complete");
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** @throws {AppError} invalid */
function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return failField("body", "must be valid UTF-8");
  }
}

/**
 * Checks `Content-Type`, `Content-Encoding` and `Content-Length`, then reads the body.
 * @returns the JSON value
 * @throws {AppError} unsupported_media_type, payload_too_large, invalid
 */
export type ReadBody = (request: Request) => Promise<unknown>;

/** @param maxBytes the limit; a larger `Content-Length` is rejected before the body is read */
export function createBodyReader(maxBytes: number): ReadBody {
  return async (request) => {
    requireJson(request);
    // Bun joins repeated fields with commas, and rejects those that differ: `2, 2` is 2 (RFC 9110 §8.6).
    requireLength(Number.parseInt(request.headers.get("content-length") ?? "0", 10), maxBytes);
    const bytes = await readBytes(request, maxBytes).catch(failIncomplete);
    return parseJson(decode(bytes));
  };
}

/** The schema of a route whose request body is a JSON object. @param record see `createValidator` */
export function jsonBody<Of extends Schema>(schema: Of, record: Schema): InputSchema<ValueOf<Of>> {
  return inputSchema(schema, createValidator(schema, record));
}
