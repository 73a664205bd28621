/** JSON bodies, made from records that are text already, and the headers that belong to them. */
import type { AppError, FieldError } from "../../base/error.ts";
import { type Page, type PageQuery, pageOffsets } from "../../domain/page.ts";
import { matchesIfNoneMatch, type Preconditions, requireMatch } from "../../domain/precondition.ts";
import type { JsonText, Parsed, RecordText } from "../../domain/record.ts";
import type { Call, ResponseHead, UncheckedCall } from "../input/call.ts";

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
    /** Only a validation error has them. */
    readonly problems?: readonly FieldError[];
    /** Of `invalid_status_change`: the statuses. Of `invalid_refund`: the range. Of a page that is too large: the limit. */
    readonly allowed?: AppError["allowed"];
  };
}

/** JSON that all responses share, because Bun copies a string for each of them. */
export type JsonBlob<Value> = Blob & Parsed<Value>;

/** `null` for no body. */
export type ResponseBody = string | Blob | null;

type Answered = Pick<UncheckedCall, "head" | "recordId">;

/** `Cache-Control` of a record: a client may keep it, and must revalidate it before each use. */
export const REVALIDATE = "private, no-cache";

export function envelopeBody<Data>(data: JsonText<Data>): JsonText<Envelope<Data>> {
  return `{"data":${data},"error":null}`;
}

export function errorEnvelope({ code, message, problems, allowed }: AppError): ErrorEnvelope {
  const meta = { code, ...(problems.length > 0 && { problems }), ...(allowed && { allowed }) };
  return { data: null, error: message, meta };
}

/** Without an `ETag`. */
export function deletedBody<Row>(
  call: Answered,
  { id, json, replayed }: RecordText<Row>,
): JsonText<Envelope<Row>> {
  call.recordId = id;
  if (replayed) call.head.headers["idempotent-replayed"] = "true";
  return envelopeBody(json);
}

export function recordBody<Row>(call: Answered, record: RecordText<Row>): JsonText<Envelope<Row>> {
  const { headers } = call.head;
  headers["etag"] = `"${record.version}"`;
  headers["cache-control"] = REVALIDATE;
  return deletedBody(call, record);
}

/** @returns `null`, with status 304, if the client already has this version. @throws {AppError} version_mismatch */
export function conditionalRecordBody<Row>(
  call: Answered,
  record: RecordText<Row>,
  preconditions: Preconditions | null,
): JsonText<Envelope<Row>> | null {
  if (preconditions !== null) {
    requireMatch(record, preconditions);
    if (matchesIfNoneMatch(record, preconditions)) call.head.status = 304;
  }
  const body = recordBody(call, record);
  if (call.head.status === 304) return null;
  call.head.version = record.version;
  return body;
}

export function createdBody<Row>(
  call: Answered,
  path: string,
  record: RecordText<Row>,
): JsonText<Envelope<Row>> {
  const { head } = call;
  head.status = 201;
  head.headers["location"] = `${path}/${record.id}`;
  return recordBody(call, record);
}

/** An array becomes its values, separated by commas, as clients write it. */
type Filters = Readonly<Record<string, string | number | readonly number[] | undefined>>;

function filterParameters(filters: Filters): string {
  let parameters = "";
  for (const name in filters) {
    const value = filters[name];
    if (value !== undefined)
      parameters += `&${name}=${encodeURIComponent(String(value)).replaceAll("%2C", ",")}`;
  }
  return parameters;
}

/** @returns a function that returns a link to another page with the same limit and filters. @see RFC 8288 */
export function pageLinker(path: string, limit: number, filters: Filters) {
  const parameters = filterParameters(filters);
  return (rel: string, position: string) =>
    `<${path}?limit=${limit}&${position}${parameters}>; rel="${rel}"`;
}

export function pageLinks(
  path: string,
  query: ListQuery,
  { total, nextAfter, maxOffset = Number.POSITIVE_INFINITY }: Page,
): string {
  const { limit, offset, after, ...filters } = query;
  const link = pageLinker(path, limit, filters);
  if (after !== undefined) {
    const first = link("first", "after=0");
    return nextAfter === null ? first : `${first}, ${link("next", `after=${nextAfter}`)}`;
  }
  const offsets = { first: 0, ...pageOffsets({ limit, offset }, total) };
  return Object.entries(offsets)
    .filter(([, target]) => target !== null && target <= maxOffset)
    .map(([rel, target]) => link(rel, `offset=${target}`))
    .join(", ");
}

export type ListQuery = PageQuery & Filters;

export function pageBody<Row>(
  { head, query }: Pick<Call<ListQuery>, "head" | "query">,
  path: string,
  page: Page,
): JsonText<PageEnvelope<Row>> {
  const { limit, offset } = query;
  const meta = `{"total":${page.total},"limit":${limit},"offset":${offset}}`;
  return recordsBody(head, pageLinks(path, query, page), page.records, meta);
}

/** @param meta JSON */
export function recordsBody<Envelope>(
  head: ResponseHead,
  link: string,
  records: string,
  meta: string,
): JsonText<Envelope> {
  head.headers["link"] = link;
  return `{"data":[${records}],"error":null,"meta":${meta}}`;
}
