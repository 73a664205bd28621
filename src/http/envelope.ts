/** The envelopes of responses. */
import type { ElysiaCustomStatusResponse } from "elysia";
import type { FieldError } from "../error.ts";
import type { CreateResult } from "../idempotency.ts";
import { type Chunks, type Page, type PageQuery, pageOffsets } from "../page.ts";
import { matchesIfNoneMatch, type Preconditions, requireMatch } from "../precondition.ts";

export interface Envelope<Data> {
  readonly data: Data;
  readonly error: null;
}

export interface PageEnvelope<Row> extends Envelope<readonly Row[]> {
  readonly meta: { readonly total: number; readonly limit: number; readonly offset: number };
}

export interface ErrorEnvelope<Code extends string = string> {
  readonly data: null;
  readonly error: string;
  readonly meta: {
    /** A stable identifier for programs, e.g. `email_taken`. */
    readonly code: Code;
    /** Of a validation error. */
    readonly problems?: readonly FieldError[];
  };
}

/** The status and the headers of a response in progress: Elysia's `set`. */
export interface ResponseHead {
  /** By lower-case name. */
  headers: Record<string, string | number>;
  /** Default 200. */
  status?: unknown;
}

/** The interactive reference. */
export const docs_path = "/api/v1/docs";

export const JSON_TYPE = "application/json";
/** JSON Merge Patch (RFC 7396). */
export const PATCH_TYPE = "application/merge-patch+json";
/** `Accept-Patch` of a 415 (RFC 5789 §2.2). */
export const PATCH_TYPES = `${JSON_TYPE}, ${PATCH_TYPE}`;
export const TEXT_TYPE = "text/plain; charset=utf-8";

/** `Cache-Control` of a record: a client may keep it, and must revalidate it before each use. */
export const REVALIDATE = "private, no-cache";

export function envelope<Data>(data: Data): Envelope<Data> {
  return { data, error: null };
}

export function errorEnvelope(
  code: string,
  error: string,
  problems: readonly FieldError[] = [],
): ErrorEnvelope {
  return { data: null, error, meta: problems.length === 0 ? { code } : { code, problems } };
}

/** Creates the response with one record, and sets its `ETag`. */
export function recordResponse<Row extends { readonly version: number }>(
  set: ResponseHead,
  row: Row,
): Envelope<Row> {
  set.headers["etag"] = `"${row.version}"`;
  set.headers["cache-control"] = REVALIDATE;
  return envelope(row);
}

/**
 * Creates the response to a GET of one record: 304 if the client already has this version.
 * @throws {AppError} version_mismatch if `If-Match` does not match
 */
export function conditionalRecord<Row extends { readonly version: number }>(
  set: ResponseHead,
  row: Row,
  preconditions: Preconditions | null,
): Envelope<Row> {
  if (preconditions !== null) {
    requireMatch(row, preconditions);
    if (matchesIfNoneMatch(row, preconditions)) set.status = 304;
  }
  return recordResponse(set, row);
}

/**
 * Creates the response with a new record, or the replay of one, and sets its `Location`. The return type has the
 * status, for typed clients.
 * @param path the path of the list
 */
export function createdResponse<Row extends { readonly id: number; readonly version: number }>(
  set: ResponseHead,
  path: string,
  { record: row, replayed }: CreateResult<Row>,
): ElysiaCustomStatusResponse<201, Envelope<Row>> {
  set.status = 201;
  set.headers["location"] = `${path}/${row.id}`;
  if (replayed) set.headers["idempotent-replayed"] = "true";
  return recordResponse(set, JSON.parse(row.json)) as never;
}

/** Streams a large page at the speed of the client; discards the rest if the client disconnects. */
function streamOf(head: string, chunks: Chunks, tail: string): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let begun = false;
  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (!begun) {
          begun = true;
          controller.enqueue(encoder.encode(head));
          return;
        }
        const chunk = chunks.next();
        if (chunk !== null) {
          controller.enqueue(chunk);
          return;
        }
        controller.enqueue(encoder.encode(tail));
        controller.close();
      },
      cancel: () => chunks[Symbol.dispose](),
    },
    // A chunk is valid until the next one is read, so nothing may be read ahead.
    { highWaterMark: 0 },
  );
}

/**
 * Creates the response with one page, and sets its `Link`. The records are JSON text already. The return type is
 * that of the parsed body, for typed clients.
 * @param path the path of the list, without a query
 * @param query the validated query; its filters are kept in the links
 * @see RFC 8288
 */
export function pageResponse<Row>(
  set: ResponseHead,
  path: string,
  query: PageQuery & Readonly<Record<string, string | number | undefined>>,
  { records, total, next_after }: Page,
): PageEnvelope<Row> {
  const { limit, offset, after, ...filters } = query;
  const [position, targets] =
    after === undefined
      ? ["offset", pageOffsets({ limit, offset }, total)]
      : ["after", { first: 0, next: next_after }];
  const links: string[] = [];
  for (const [rel, target] of Object.entries(targets)) {
    if (target === null) continue;
    const parameters = Object.entries({ limit, [position]: target, ...filters })
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
    links.push(`<${path}?${parameters.join("&")}>; rel="${rel}"`);
  }
  set.headers["link"] = links.join(", ");
  set.headers["content-type"] = JSON_TYPE;
  const head = '{"data":[';
  const tail = `],"error":null,"meta":{"total":${total},"limit":${limit},"offset":${offset}}}`;
  const body = typeof records === "string" ? head + records + tail : streamOf(head, records, tail);
  return body as unknown as PageEnvelope<Row>;
}
