/**
 * The body of a request: read, bounded, parsed and checked, in this order and after the guard.
 * Elysia's own parsers run before it and are off (see `lifecycle`).
 */
import { AppError, fail, failField } from "../error.ts";
import { parseJson } from "../json.ts";
import { createValidator, type Schema, type ValueOf } from "../schema.ts";
import { JSON_TYPE, PATCH_TYPE } from "./envelope.ts";
import { type InputSchema, inputSchema, requireIdempotencyKey } from "./params.ts";

const MEDIA_TYPE = /^\s*([^\s;]+)\s*(?:;.*)?$/;
/** Name and value of a parameter of a media type; the value may be a quoted string. @see RFC 9110 §5.6.6 */
const PARAMETER = /;\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)/g;

/** @returns whether the media type names no charset other than UTF-8 */
function isUtf8(media_type: string): boolean {
  return [...media_type.matchAll(PARAMETER)].every(([, name = "", value = ""]) => {
    const text = value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value;
    return name.toLowerCase() !== "charset" || text.toLowerCase() === "utf-8";
  });
}

/** @throws {AppError} unsupported_media_type */
function requireJson(request: Request): void {
  if ((request.headers.get("content-encoding") ?? "identity").toLowerCase() !== "identity") {
    fail("unsupported_media_type", "the body must not be compressed");
  }
  const header = request.headers.get("content-type");
  if (header === null || header === "") return;
  const type = MEDIA_TYPE.exec(header)?.[1]?.toLowerCase();
  const is_patch = type === PATCH_TYPE && request.method === "PATCH";
  if (type !== JSON_TYPE && !is_patch)
    fail("unsupported_media_type", `the body must be ${JSON_TYPE}`);
  if (header.includes(";") && !isUtf8(header))
    fail("unsupported_media_type", "the body must be UTF-8");
}

/** @throws {AppError} payload_too_large */
async function readBytes(request: Request, max_bytes: number): Promise<Uint8Array> {
  const failTooLarge = () =>
    fail("payload_too_large", `the body must be at most ${max_bytes} bytes`);
  const content_length = request.headers.get("content-length");
  if (content_length !== null) {
    if (Number(content_length) > max_bytes) failTooLarge();
    return request.bytes();
  }
  // Sent in chunks: counted as it comes, since nobody has said how much there is.
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of request.body ?? []) {
    length += chunk.byteLength;
    if (length > max_bytes) failTooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** A client that goes away in mid-sentence is no fault of ours. */
function failIncomplete(error: unknown): never {
  if (error instanceof AppError) throw error;
  failField("body", "must be sent whole");
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

export interface BodyHooks<Body> {
  readonly transform: (context: { body: unknown; readonly request: Request }) => Promise<void>;
  readonly body: InputSchema<Body>;
}

/** Makes the hooks of a route that takes a JSON object of this schema. */
export type JsonBody = <Of extends Schema>(schema: Of, record: Schema) => BodyHooks<ValueOf<Of>>;

/** @param max_bytes a larger body is refused before it is read */
export function createJsonBody(max_bytes: number): JsonBody {
  return (schema, record) => ({
    transform: async (context) => {
      // The type first: it is known before the body is.
      requireJson(context.request);
      const bytes = await readBytes(context.request, max_bytes).catch(failIncomplete);
      requireIdempotencyKey(context.request.headers.get("idempotency-key"));
      context.body = parseJson(decode(bytes));
    },
    body: inputSchema(createValidator(schema, record)),
  });
}
