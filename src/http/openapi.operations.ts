/** Builds the operations of the OpenAPI document. */
import type { Schema } from "../schema.ts";
import { JSON_TYPE, PATCH_TYPE } from "./envelope.ts";
import { parameter, withCommonHeaders } from "./openapi.headers.ts";
import { type ErrorResponseName, statusOf } from "./openapi.responses.ts";
import { envelopeSchema, type Json, ref, schemaOrRef } from "./openapi.schemas.ts";

interface OperationSpec {
  readonly id: string;
  readonly summary: string;
  readonly description: string;
  /** The scope that the token needs; `null` for a public operation. */
  readonly scope: "read" | "write" | null;
  readonly parameters?: readonly Json[];
  readonly body?: Json;
  /** Successful responses, by status. */
  readonly responses: Json;
  /** Errors in addition to those that follow from `scope` and `body`. */
  readonly errors?: readonly ErrorResponseName[];
}

/** @returns whether the request body may be a JSON Merge Patch */
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
    // Later entries replace earlier ones: the 400 of an order id replaces `Invalid`.
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

/** The name of the schema of a record, and an example. */
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
    "The new record. With the `Idempotency-Key` of an earlier request: the record created then",
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
    "One page. Past the end, `data` is empty and `total` is still correct",
    withCommonHeaders({ Link: ref("headers", "Link") }),
    envelopeSchema(data, { meta: ref("schemas", "PageMeta") }),
    { ...exampleEnvelope([example]), meta },
  );
}

export const notModified = () => ({
  description: "The record still has one of the versions in `If-None-Match`",
  headers: withCommonHeaders({ ETag: ref("headers", "ETag") }, "Revalidate"),
});

/** Descriptions of the query parameters of lists, by name. */
const query_descriptions: Readonly<Record<string, string>> = {
  limit: "The maximum number of records in the page",
  offset: "The number of records to skip",
  after:
    "Only records with a larger id. The record with this id need not exist. The cost is the same at any depth. Cannot be combined with `offset`",
  email: "Only the user with this email, regardless of case",
  user_id: "Only orders of this user",
  status: "Only orders with this status",
};

/** Describes the bounds of a number in words, because Swagger UI does not show them. */
function describeBounds({ minimum, maximum, default: default_value }: Schema): string {
  if (default_value === undefined) return "";
  const upTo = maximum === Number.MAX_SAFE_INTEGER ? "" : ` to ${maximum}`;
  return `: from ${minimum}${upTo}, default ${default_value}`;
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
