/** The OpenAPI document. It is built on first use, to keep startup fast. @see https://spec.openapis.org/oas/v3.1.0 */
import type { ErrorCode } from "../../base/error.ts";
import { errorKinds } from "../../base/error-kinds.ts";
import { type JsonText, jsonText } from "../../domain/record.ts";
import { type InputSchema, JSON_TYPE, type JsonSchema, PATCH_TYPE } from "../input/input.ts";
import {
  errorResponseDoc,
  errorSchemas,
  headerParameters,
  headers,
  ref,
  withCommonHeaders,
} from "./components.ts";
import { commonErrors, type RouteDefinition, type RouteEntry } from "./detail.ts";

const description = `
Users and their orders, as JSON over HTTP.

- **Responses** are \`{"data": …, "error": null}\`. Lists add \`meta\`.
- **Errors** have a sentence for people in \`error\` and a stable identifier for programs in \`meta.code\`: the examples
  of an operation have all of its codes. Validation errors list up to 20 problems in \`meta.problems\`, each with a
  \`code\`. A few errors are plain text, as documented for each operation.
- **Authentication**: send a token as \`Authorization: Bearer …\`. Each operation names the scopes that it needs.
  Without a valid token, every path except the public ones returns 401, including paths that do not exist.
- **Input is strict**: unknown or duplicate fields and parameters, read-only fields, and numbers that would lose
  precision return a 400 that names the field. Text is well-formed Unicode without U+0000.
- **HEAD** works wherever GET does.
- **Lists**: to read a whole list, start with \`after=0\` and follow the \`Link\` header with \`rel="next"\` until there is
  none. \`offset\` leads to any page directly. \`meta.total\` is exact.
- **Retries**: retry after 429, 503 and a broken connection; \`Retry-After\` says how many seconds to wait. To do
  nothing twice, send the same \`Idempotency-Key\` with every attempt of a write.
- **Concurrent edits**: to overwrite nothing, send the \`ETag\` back in \`If-Match\`. A 412 means that the record has
  changed: read it again.
- **Request ids**: every response has an \`X-Request-Id\`, which is also in the log of the server. To choose it, send an
  \`X-Request-Id\` of 1 to 128 visible ASCII characters.
- **Money** is an integer in the minor unit of its currency.
- **Within v1**, fields, values, operations and error codes are only added: ignore what you do not know. So schemas of
  responses are open: texts with a few values list them as examples.
`.trim();

/** Enough for all but long lists, such as that of currencies. */
const MAX_EXAMPLES = 5;

type Side = "request" | "response";

/** Not of responses: v1 can widen them, and clients that count characters differently would reject a whole page. */
const bounds: ReadonlySet<string> = new Set([
  ...["minimum", "maximum", "minLength", "maxLength", "pattern"],
  ...["minItems", "maxItems", "minProperties", "maxProperties", "propertyNames"],
]);

/** Adds schemas with a title to the components. Requests are closed. Responses are open, since v1 adds fields and values. */
function createSchemas(components: Record<string, JsonSchema>) {
  function schemaOf(schema: JsonSchema, side: Side): JsonSchema {
    const { title } = schema as { readonly title?: string };
    const isOpenEnum = schema["enum"] !== undefined && side === "response";
    const isKept = (name: string) => side === "request" || !bounds.has(name);
    const inline = () => {
      const keywords = Object.entries(inlineSchema(schema, side));
      return Object.fromEntries(keywords.filter(([name]) => isKept(name)));
    };
    if (title === undefined || isOpenEnum) return inline();
    // `Input` and `Patch` end the titles of schemas that only requests have.
    const isObject = (schema["properties"] ?? schema["patternProperties"]) !== undefined;
    const isRequest = side === "request" && isObject;
    const isShared = isRequest && !/Input$|Patch$/.test(title);
    const name = isShared ? `${title}Input` : title;
    components[name] ??= inline();
    return ref("schemas", name);
  }

  /** @returns it as most tools support it, without defaults: they would send them, and `offset` is not allowed with `after` */
  function inlineSchema({ title, default: _, ...schema }: JsonSchema, side: Side): JsonSchema {
    const { anyOf, patternProperties, additionalProperties, properties, items, ...rest } = schema;
    if (Array.isArray(anyOf)) {
      const members: JsonSchema[] = anyOf.map((member) => schemaOf(member, side));
      const [inner = {}] = members;
      // As `Nullable` makes it.
      const isShort = anyOf.length === 2 && inner["$ref"] === undefined;
      return isShort
        ? { ...rest, ...inner, type: [inner["type"], "null"] }
        : { ...rest, anyOf: members };
    }
    if (patternProperties !== undefined) {
      const [entry] = Object.entries(patternProperties as Record<string, JsonSchema>);
      const [pattern, value] = entry ?? ["", {}];
      const values = schemaOf(value, side);
      return { ...rest, propertyNames: { pattern }, additionalProperties: values };
    }
    if (properties !== undefined) {
      const members = Object.entries(properties as Record<string, JsonSchema>).map(
        ([name, member]) => [name, schemaOf(member, side)],
      );
      const closed = side === "request" && { additionalProperties: false };
      return { ...rest, properties: Object.fromEntries(members), ...closed };
    }
    if (items !== undefined) return { ...rest, items: schemaOf(items as JsonSchema, side) };
    return inlineValue(rest, side);
  }

  return schemaOf;
}

function inlineValue(schema: JsonSchema, side: Side): JsonSchema {
  const { enum: values, format, ...rest } = schema;
  if (side === "request" && values !== undefined) return schema;
  if (Array.isArray(values)) return { ...rest, examples: values.slice(0, MAX_EXAMPLES) };
  // Neither `email` nor `idn-email` of JSON Schema allows all addresses that are in use.
  if (format === "email") return rest;
  // Generated clients use 32 bits unless the format says otherwise.
  const isLarge = rest["type"] === "integer" && !(Number(rest["maximum"]) < 2 ** 31);
  return isLarge ? { ...schema, format: "int64" } : schema;
}

type Components = Record<"schemas" | "responses", Record<string, JsonSchema>>;

function createOperation(components: Components) {
  const schemaOf = createSchemas(components.schemas);

  function parametersIn(place: "path" | "query", part?: InputSchema<unknown>): JsonSchema[] {
    const properties = (part?.schema["properties"] ?? {}) as Record<string, JsonSchema>;
    const more = place === "path" && { required: true, example: 1 };
    const required = (part?.schema["required"] ?? []) as readonly string[];
    return Object.entries(properties).map(([name, property]) => {
      const { description, ...value } = property;
      const list = value["type"] === "array" && { style: "form", explode: false };
      const isNeeded = required.includes(name) && property["default"] === undefined;
      const needed = isNeeded && { required: true };
      const schema = schemaOf(value, "request");
      return { name, in: place, description, schema, ...needed, ...more, ...list };
    });
  }

  function errorResponses(route: RouteDefinition, errors: readonly ErrorCode[]): JsonSchema {
    const all: ErrorCode[] = [...commonErrors.all];
    if (!route.public) all.push(...commonErrors.token);
    if (route.scopes) all.push(...commonErrors.scopes);
    if (route.body) all.push(...commonErrors.body);
    const byStatus = Map.groupBy([...all, ...errors], (code) => errorKinds[code].status);
    const entries = [...byStatus].map(([status, codes]) => {
      const name = codes.join("_or_");
      components.responses[name] ??= errorResponseDoc(codes);
      return [status, ref("responses", name)];
    });
    return Object.fromEntries(entries);
  }

  return ({ method, tags, route }: RouteEntry): JsonSchema | null => {
    if (route.response === undefined) return null;
    const { scopes, params, query, body, response, errors = [], example } = route;
    const { operationId, summary, description } = route;
    const { status = 200, type = JSON_TYPE } = response;
    const media = body && { schema: schemaOf(body.schema, "request"), example };
    const takesKey = errors.includes("idempotency_key_reused");
    const headers = withCommonHeaders({
      ...response.headers,
      ...(takesKey && { "Idempotent-Replayed": ref("headers", "IdempotentReplayed") }),
      ...(method === "GET" && scopes && { Age: ref("headers", "Age") }),
    });
    const types = method === "PATCH" ? [JSON_TYPE, PATCH_TYPE] : [JSON_TYPE];
    const unchanged = "The record still has one of the versions in `If-None-Match`";
    const canBeUnchanged = method === "GET" && errors.includes("version_mismatch");
    return {
      ...{ tags, operationId, summary, description },
      security: route.public ? [] : [{ token: scopes ?? [] }],
      parameters: [
        ...parametersIn("path", params),
        ...parametersIn("query", query),
        ...headerParameters(method, errors),
      ],
      ...(media && {
        requestBody: {
          required: true,
          content: Object.fromEntries(types.map((type) => [type, media])),
        },
      }),
      responses: {
        [status]: {
          description: response.description,
          headers,
          content: {
            [type]: { schema: schemaOf(response.schema, "response"), example: response.example },
          },
        },
        ...(canBeUnchanged && { 304: { description: unchanged, headers } }),
        ...errorResponses(route, errors),
      },
    };
  };
}

export function documentJson(version: string, routes: readonly RouteEntry[]): JsonText<JsonSchema> {
  const components = {
    schemas: errorSchemas(),
    headers: headers(),
    responses: {},
    securitySchemes: {
      token: {
        type: "http",
        scheme: "bearer",
        bearerFormat: "uat_ followed by 36 letters and digits",
        description:
          "Create one with `user-api token create NAME`. Scopes are `users:read`, `users:write`, `orders:read` and `orders:write`; `read` and `write` stand for both, and writing includes reading.",
      },
    },
  };
  const operationOf = createOperation(components);
  const paths: Record<string, Record<string, JsonSchema>> = {};
  for (const entry of routes) {
    const operation = operationOf(entry);
    if (operation === null) continue;
    const path = entry.path.replace(/:(\w+)/g, "{$1}");
    paths[path] = { ...paths[path], [entry.method.toLowerCase()]: operation };
  }
  return jsonText<JsonSchema>({
    openapi: "3.1.0",
    info: {
      title: "user-api",
      version,
      summary: "Users and orders",
      description,
      license: { name: "MIT (the user-api authors)", identifier: "MIT" },
    },
    servers: [{ url: "/", description: "This server" }],
    security: [{ token: [] }],
    tags: [
      { name: "users", description: "Customers" },
      { name: "orders", description: "Orders and their status" },
      { name: "changes", description: "All changes of users and orders, in order" },
      { name: "system", description: "Health, metrics and documentation" },
    ],
    paths,
    components,
  });
}
