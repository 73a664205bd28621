/** The shapes that answers have. */
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

export interface ErrorEnvelope {
  readonly data: null;
  readonly error: string;
  readonly meta: {
    /** A stable identifier for programs, e.g. `email_taken`. */
    readonly code: string;
    /** Of a validation error. */
    readonly problems?: readonly FieldError[];
  };
}

/** The answer under way: Elysia's `set`. */
export interface ResponseHead {
  /** By lower-case name. */
  headers: Record<string, string | number>;
  /** 200 where none is set. */
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

/** `Cache-Control` of a record: a client may keep it if it asks each time whether it still holds. */
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

/** One record, with what tells whether it has changed. */
export function recordResponse<Row extends { readonly version: number }>(
  set: ResponseHead,
  row: Row,
): Envelope<Row> {
  set.headers["etag"] = `"${row.version}"`;
  set.headers["cache-control"] = REVALIDATE;
  return envelope(row);
}

/**
 * One record that was asked for; 304 if the client already has its version.
 * @throws {AppError} version_mismatch if `If-Match` does not match
 */
export function conditionalRecord<Row extends { readonly version: number }>(
  set: ResponseHead,
  row: Row,
  preconditions: Preconditions | null,
): Envelope<Row> {
  requireMatch(row, preconditions);
  if (matchesIfNoneMatch(row, preconditions)) set.status = 304;
  return recordResponse(set, row);
}

/**
 * A new record and where it is; the very same for a request that is repeated with its key.
 * @param path of the list it is in
 */
export function createdResponse<Row extends { readonly id: number; readonly version: number }>(
  set: ResponseHead,
  path: string,
  { record: row, replayed }: CreateResult<Row>,
): Envelope<Row> {
  set.status = 201;
  set.headers["location"] = `${path}/${row.id}`;
  if (replayed) set.headers["idempotent-replayed"] = "true";
  return recordResponse(set, row);
}

/** Sends a large page as fast as its reader takes it; a reader that goes away gives up the rest. */
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
    // A chunk is valid until the next one is asked for, so none may be asked for early.
    { highWaterMark: 0 },
  );
}

/**
 * One page, with the links to the pages around it. Its type is that of the body: the records are JSON already.
 * @param path of the list, without query
 * @param query what the client asked for, defaults filled in: filters are kept in the links
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
