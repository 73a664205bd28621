/** How an operation of the API document is made, and what makes it like others. */
import type { Schema } from "../schema.ts";
import { JSON_TYPE, PATCH_TYPE } from "./envelope.ts";
import { parameter, withUsual } from "./openapi.headers.ts";
import { type RefusalName, statusOf } from "./openapi.responses.ts";
import { enveloped, type Json, refer, shown } from "./openapi.schemas.ts";

interface Draft {
  readonly id: string;
  readonly summary: string;
  readonly description: string;
  /** The scope that a token must have; `null` where none is asked for. */
  readonly scope: "read" | "write" | null;
  readonly parameters?: readonly Json[];
  readonly body?: Json;
  /** Answers that are no refusals, by status. */
  readonly answers: Json;
  /** Beyond those that follow from all of the above. */
  readonly refusals?: readonly RefusalName[];
}

/** @returns whether the body may be a JSON Merge Patch, as in the operations of PATCH */
function isPatch(body: Json): boolean {
  return PATCH_TYPE in (body["content"] as Json);
}

function refusalsOf({ scope, body, refusals = [] }: Draft): RefusalName[] {
  const names: RefusalName[] = ["Invalid", "Internal", ...refusals];
  if (scope !== null) names.push("Unauthorised", "TooManyRequests", "Unavailable");
  if (scope === "write") names.push("InsufficientScope");
  if (body !== undefined)
    names.push("TooLarge", isPatch(body) ? "UnsupportedPatchType" : "UnsupportedType");
  return names;
}

export function operation(tag: string, draft: Draft): Json {
  const { id, summary, description, scope, parameters = [], body, answers } = draft;
  const refused = refusalsOf(draft).map((name) => [statusOf(name), refer("responses", name)]);
  return {
    operationId: id,
    tags: [tag],
    summary,
    description,
    security: scope === null ? [] : [{ token: [] }],
    parameters: [...parameters, refer("parameters", "RequestId")],
    requestBody: body,
    // Later ones take the place of earlier ones: an order has a 400 of its own.
    responses: {
      ...Object.fromEntries(refused),
      405: refer("responses", "MethodNotAllowed"),
      ...answers,
    },
  };
}

export function answer(description: string, headers: Json, schema: Json, example: unknown): Json {
  return { description, headers, content: { [JSON_TYPE]: { schema, example } } };
}

/** A record that is kept: its schema's name, and one that fits it. */
export interface Kept {
  readonly name: "User" | "Order";
  readonly example: Json;
}

export const exampleEnvelope = (data: unknown) => ({ data, error: null });

export function recordAnswer(
  description: string,
  { name, example }: Kept,
  headers: Json = {},
): Json {
  const etag = { ETag: refer("headers", "ETag"), ...headers };
  const schema = enveloped(refer("schemas", name));
  return answer(description, withUsual(etag, "Revalidate"), schema, exampleEnvelope(example));
}

export function createdAnswer(kept: Kept): Json {
  return recordAnswer(
    "The new record, or with the key of an earlier request the one it made",
    kept,
    {
      Location: refer("headers", "Location"),
      "Idempotent-Replayed": refer("headers", "IdempotentReplayed"),
    },
  );
}

export function pageAnswer({ name, example }: Kept): Json {
  const data = { type: "array", items: refer("schemas", name) };
  const meta = { total: 1, limit: 50, offset: 0 };
  return answer(
    "A page; past the end it is empty, and `total` is true",
    withUsual({ Link: refer("headers", "Link") }),
    enveloped(data, { meta: refer("schemas", "PageMeta") }),
    { ...exampleEnvelope([example]), meta },
  );
}

export const unchanged = () => ({
  description: "The record still has one of the versions in `If-None-Match`",
  headers: withUsual({ ETag: refer("headers", "ETag") }, "Revalidate"),
});

/** What the parameters of lists do, by name. */
const filters: Readonly<Record<string, string>> = {
  limit: "How many records the page has at most",
  offset: "How many records to skip",
  after:
    "Only records with a larger id, which need not exist; the same cost at any depth. Not together with `offset`",
  email: "Only the user who has it, in whatever case",
  user_id: "Only orders of this user",
  status: "Only orders that have it",
};

/** What a schema says of a number, in words: pages show it nowhere else. */
function boundsOf({ minimum, maximum, default: fallback }: Schema): string {
  if (fallback === undefined) return "";
  const upTo = maximum === Number.MAX_SAFE_INTEGER ? "" : ` to ${maximum}`;
  return `: from ${minimum}${upTo}, ${fallback} unless given`;
}

export function queryOf({ properties }: Schema): Json[] {
  return Object.entries<Schema>(properties).map(([name, property]) => {
    const description = `${filters[name] ?? ""}${boundsOf(property)}`;
    return parameter(name, description, shown(property), { in: "query" });
  });
}

export function bodyOf({ title = "" }: Schema, example: Json, types = [JSON_TYPE]): Json {
  const media = { schema: refer("schemas", title), example };
  return { required: true, content: Object.fromEntries(types.map((type) => [type, media])) };
}

export const patchOf = (schema: Schema, example: Json) =>
  bodyOf(schema, example, [JSON_TYPE, PATCH_TYPE]);
