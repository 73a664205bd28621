/** How an operation of the API document is made, and what makes it like others. */
import type { Schema } from "../schema.ts";
import { JSON_TYPE, PATCH_TYPE } from "./envelope.ts";
import { parameter, withCommonHeaders } from "./openapi.headers.ts";
import { type ErrorResponseName, statusOf } from "./openapi.responses.ts";
import { envelopeSchema, type Json, ref, schemaOrRef } from "./openapi.schemas.ts";

interface OperationSpec {
  readonly id: string;
  readonly summary: string;
  readonly description: string;
  /** The scope that a token must have; `null` where none is asked for. */
  readonly scope: "read" | "write" | null;
  readonly parameters?: readonly Json[];
  readonly body?: Json;
  /** Answers that are no refusals, by status. */
  readonly responses: Json;
  /** Beyond those that follow from all of the above. */
  readonly errors?: readonly ErrorResponseName[];
}

/** @returns whether the body may be a JSON Merge Patch, as in the operations of PATCH */
function isPatch(body: Json): boolean {
  return PATCH_TYPE in (body["content"] as Json);
}

function errorNames({ scope, body, errors = [] }: OperationSpec): ErrorResponseName[] {
  const names: ErrorResponseName[] = ["Invalid", "Internal", ...errors];
  if (scope !== null) names.push("Unauthorised", "TooManyRequests", "Unavailable");
  if (scope === "write") names.push("InsufficientScope");
  if (body !== undefined)
    names.push("TooLarge", isPatch(body) ? "UnsupportedPatchType" : "UnsupportedType");
  return names;
}

export function operation(tag: string, spec: OperationSpec): Json {
  const { id, summary, description, scope, parameters = [], body, responses } = spec;
  const error_responses = errorNames(spec).map((name) => [statusOf(name), ref("responses", name)]);
  return {
    operationId: id,
    tags: [tag],
    summary,
    description,
    security: scope === null ? [] : [{ token: [] }],
    parameters: [...parameters, ref("parameters", "RequestId")],
    requestBody: body,
    // Later ones take the place of earlier ones: an order has a 400 of its own.
    responses: {
      ...Object.fromEntries(error_responses),
      405: ref("responses", "MethodNotAllowed"),
      ...responses,
    },
  };
}

export function jsonResponse(
  description: string,
  headers: Json,
  schema: Json,
  example: unknown,
): Json {
  return { description, headers, content: { [JSON_TYPE]: { schema, example } } };
}

/** A record that is kept: its schema's name, and one that fits it. */
export interface DocumentedRecord {
  readonly name: "User" | "Order";
  readonly example: Json;
}

export const exampleEnvelope = (data: unknown) => ({ data, error: null });

export function documentedRecord(
  description: string,
  { name, example }: DocumentedRecord,
  headers: Json = {},
): Json {
  const etag = { ETag: ref("headers", "ETag"), ...headers };
  const schema = envelopeSchema(ref("schemas", name));
  return jsonResponse(
    description,
    withCommonHeaders(etag, "Revalidate"),
    schema,
    exampleEnvelope(example),
  );
}

export function documentedCreation(documented: DocumentedRecord): Json {
  return documentedRecord(
    "The new record, or with the key of an earlier request the one it made",
    documented,
    {
      Location: ref("headers", "Location"),
      "Idempotent-Replayed": ref("headers", "IdempotentReplayed"),
    },
  );
}

export function documentedPage({ name, example }: DocumentedRecord): Json {
  const data = { type: "array", items: ref("schemas", name) };
  const meta = { total: 1, limit: 50, offset: 0 };
  return jsonResponse(
    "A page; past the end it is empty, and `total` is true",
    withCommonHeaders({ Link: ref("headers", "Link") }),
    envelopeSchema(data, { meta: ref("schemas", "PageMeta") }),
    { ...exampleEnvelope([example]), meta },
  );
}

export const notModified = () => ({
  description: "The record still has one of the versions in `If-None-Match`",
  headers: withCommonHeaders({ ETag: ref("headers", "ETag") }, "Revalidate"),
});

/** What the parameters of lists do, by name. */
const query_descriptions: Readonly<Record<string, string>> = {
  limit: "How many records the page has at most",
  offset: "How many records to skip",
  after:
    "Only records with a larger id, which need not exist; the same cost at any depth. Not together with `offset`",
  email: "Only the user who has it, in whatever case",
  user_id: "Only orders of this user",
  status: "Only orders that have it",
};

/** What a schema says of a number, in words: pages show it nowhere else. */
function describeBounds({ minimum, maximum, default: default_value }: Schema): string {
  if (default_value === undefined) return "";
  const upTo = maximum === Number.MAX_SAFE_INTEGER ? "" : ` to ${maximum}`;
  return `: from ${minimum}${upTo}, ${default_value} unless given`;
}

export function queryParameters({ properties }: Schema): Json[] {
  return Object.entries<Schema>(properties).map(([name, property]) => {
    const description = `${query_descriptions[name] ?? ""}${describeBounds(property)}`;
    return parameter(name, description, schemaOrRef(property), { in: "query" });
  });
}

export function requestBody({ title = "" }: Schema, example: Json, types = [JSON_TYPE]): Json {
  const media = { schema: ref("schemas", title), example };
  return { required: true, content: Object.fromEntries(types.map((type) => [type, media])) };
}

export const patchBody = (schema: Schema, example: Json) =>
  requestBody(schema, example, [JSON_TYPE, PATCH_TYPE]);
