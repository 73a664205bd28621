/** The operations of the OpenAPI document, one for each route. */
import { OrderInput, OrderPatch, OrderQuery } from "../order.ts";
import { UserInput, UserPatch, UserQuery } from "../user.ts";
import { header, parameter, withCommonHeaders } from "./openapi.headers.ts";
import {
  type DocumentedRecord,
  documentedCreation,
  documentedPage,
  documentedRecord,
  exampleEnvelope,
  jsonResponse,
  notModified,
  operation,
  patchBody,
  queryParameters,
  requestBody,
} from "./openapi.operations.ts";
import { envelopeSchema, type Json, object, ref } from "./openapi.schemas.ts";

const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

function userPaths(times: Json): Json {
  const { email, name, metadata } = {
    email: "ann@example.com",
    name: "Ann",
    metadata: { team: "blue" },
  };
  const example = { id: 1, email, name, metadata, version: 1, ...times };
  const documented: DocumentedRecord = { name: "User", example };
  const id = ref("parameters", "UserId");
  const if_match = ref("parameters", "IfMatch");
  const conditions = [if_match, ref("parameters", "ChangeIfNoneMatch")];
  const unused_key = ref("parameters", "UnusedIdempotencyKey");
  const changed: DocumentedRecord = {
    name: "User",
    example: { ...example, name: null, version: 2 },
  };
  return {
    "/api/v1/users": {
      get: operation("users", {
        id: "listUsers",
        summary: "List users by id",
        description: "The `Link` header has the URLs of the other pages.",
        scope: "read",
        parameters: queryParameters(UserQuery),
        responses: { 200: documentedPage(documented) },
      }),
      post: operation("users", {
        id: "createUser",
        summary: "Create a user",
        description: "Returns 409 if another user has the email, regardless of case.",
        scope: "write",
        parameters: [ref("parameters", "IdempotencyKey")],
        body: requestBody(UserInput, { email, name, metadata }),
        responses: { 201: documentedCreation(documented) },
        errors: ["EmailTaken", "KeyReused"],
      }),
    },
    "/api/v1/users/{id}": {
      get: operation("users", {
        id: "getUser",
        summary: "Get a user",
        description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
        scope: "read",
        parameters: [id, if_match, ref("parameters", "IfNoneMatch")],
        responses: { 200: documentedRecord("The user", documented), 304: notModified() },
        errors: ["UserNotFound", "VersionMismatch"],
      }),
      patch: operation("users", {
        id: "updateUser",
        summary: "Change some fields of a user",
        description:
          "JSON Merge Patch (RFC 7396): omitted fields keep their value. `null` clears `name`, all of `metadata`, " +
          "or one key of it. `{}` changes nothing, not even `version`.",
        scope: "write",
        parameters: [id, ...conditions, unused_key],
        body: patchBody(UserPatch, { name: null }),
        responses: { 200: documentedRecord("The updated user", changed) },
        errors: ["UserNotFound", "EmailTaken", "VersionMismatch"],
      }),
      put: operation("users", {
        id: "replaceUser",
        summary: "Replace a user",
        description:
          "Omitted fields get their default: `name` null, `metadata` `{}`. Never creates a user.",
        scope: "write",
        parameters: [id, ...conditions, unused_key],
        body: requestBody(UserInput, { email, metadata }),
        responses: { 200: documentedRecord("The updated user", changed) },
        errors: ["UserNotFound", "EmailTaken", "VersionMismatch"],
      }),
      delete: operation("users", {
        id: "deleteUser",
        summary: "Delete a user",
        description: "Returns 409 if the user has orders.",
        scope: "write",
        parameters: [id, ...conditions],
        responses: {
          200: jsonResponse(
            "The deleted user",
            withCommonHeaders({}),
            envelopeSchema(ref("schemas", "User")),
            exampleEnvelope(example),
          ),
        },
        errors: ["UserNotFound", "UserHasOrders", "VersionMismatch"],
      }),
    },
  };
}

function orderPaths(times: Json): Json {
  const items = [{ sku: "tea-01", name: "Green tea", quantity: 2, unit_price: 1999 }];
  const placed = { user_id: 1, currency: "EUR", items };
  const computed = { total: 3998, status: "pending", metadata: {}, version: 1 };
  const example = { id: 1, ...placed, ...computed, ...times };
  const documented: DocumentedRecord = { name: "Order", example };
  const id = ref("parameters", "OrderId");
  const if_match = ref("parameters", "IfMatch");
  return {
    "/api/v1/orders": {
      get: operation("orders", {
        id: "listOrders",
        summary: "List orders by id",
        description: "The `Link` header has the URLs of the other pages.",
        scope: "read",
        parameters: queryParameters(OrderQuery),
        responses: { 200: documentedPage(documented) },
      }),
      post: operation("orders", {
        id: "createOrder",
        summary: "Create an order",
        description:
          "Creates an order in status `pending`. The server computes `total`, and returns 400 if it exceeds " +
          "2^53 − 1 or if the user does not exist. Items cannot be changed later.",
        scope: "write",
        parameters: [ref("parameters", "IdempotencyKey")],
        body: requestBody(OrderInput, placed),
        responses: { 201: documentedCreation(documented) },
        errors: ["KeyReused"],
      }),
    },
    "/api/v1/orders/{id}": {
      get: operation("orders", {
        id: "getOrder",
        summary: "Get an order",
        description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
        scope: "read",
        parameters: [id, if_match, ref("parameters", "IfNoneMatch")],
        responses: { 200: documentedRecord("The order", documented), 304: notModified() },
        errors: ["InvalidOrder", "OrderNotFound", "VersionMismatch"],
      }),
      patch: operation("orders", {
        id: "updateOrder",
        summary: "Change the status or the metadata of an order",
        description:
          "JSON Merge Patch (RFC 7396). The status changes from `pending` to `paid`, `shipped` and `delivered`, or " +
          "from `pending` or `paid` to `canceled`. Any other change returns 409 and names the allowed ones.",
        scope: "write",
        parameters: [
          id,
          if_match,
          ref("parameters", "ChangeIfNoneMatch"),
          ref("parameters", "UnusedIdempotencyKey"),
        ],
        body: patchBody(OrderPatch, { status: "paid" }),
        responses: {
          200: documentedRecord("The updated order", {
            name: "Order",
            example: { ...example, status: "paid", version: 2 },
          }),
        },
        errors: ["InvalidOrder", "OrderNotFound", "InvalidStatusChange", "VersionMismatch"],
      }),
    },
  };
}

/** The headers of the interactive reference. */
function docsPageHeaders(): Json {
  const same = (value: string) => header(`\`${value}\``, { type: "string", const: value }, value);
  return {
    "X-Request-Id": ref("headers", "RequestId"),
    "Cache-Control": same("no-cache"),
    ETag: header("The version of the page", { type: "string", pattern: '^W/"' }, 'W/"7f3c"'),
    "Content-Security-Policy": header(
      "Allows content of this server only",
      { type: "string" },
      "default-src",
    ),
    "X-Content-Type-Options": same("nosniff"),
    "Referrer-Policy": same("no-referrer"),
  };
}

function systemPaths(): Json {
  return {
    "/api/v1/health": {
      get: operation("system", {
        id: "getHealth",
        summary: "Check health",
        description:
          "Healthy means that the server accepts requests and can write to the database.",
        scope: null,
        responses: {
          200: jsonResponse(
            "The server is healthy",
            withCommonHeaders({}),
            envelopeSchema(object({ status: { type: "string", const: "ok" } })),
            exampleEnvelope({ status: "ok" }),
          ),
        },
        errors: ["Unavailable"],
      }),
    },
    "/api/v1/metrics": {
      get: operation("system", {
        id: "getMetrics",
        summary: "Prometheus metrics",
        description: "Requests by route and status, their durations, commits, sizes and memory.",
        scope: "read",
        responses: {
          200: {
            description: "The metrics in the text format of Prometheus",
            headers: withCommonHeaders({}),
            content: { [METRICS_TYPE]: { schema: { type: "string" } } },
          },
        },
      }),
    },
    "/api/v1/openapi.json": {
      get: operation("system", {
        id: "getOpenapi",
        summary: "Get this document",
        description: "`user-api openapi` prints the same document.",
        scope: null,
        responses: {
          200: jsonResponse(
            "This document",
            withCommonHeaders({}),
            { type: "object", properties: { openapi: { type: "string" } }, required: ["openapi"] },
            { openapi: "3.1.0" },
          ),
        },
      }),
    },
    "/api/v1/docs": {
      get: operation("system", {
        id: "getDocs",
        summary: "Interactive reference",
        description:
          "A page with this document, which can send requests. Its assets are below this path and public as well.",
        scope: null,
        parameters: [
          parameter("If-None-Match", "Returns 304 if the page still has this entity tag", {
            type: "string",
            examples: ['W/"7f3c"'],
          }),
        ],
        responses: {
          200: {
            description: "The page",
            headers: docsPageHeaders(),
            content: { "text/html; charset=utf-8": { schema: { type: "string" } } },
          },
          304: { description: "The page has not changed", headers: docsPageHeaders() },
        },
      }),
    },
  };
}

export function paths(): Json {
  const time = "2026-11-20T18:57:03.120Z";
  const times = { created_at: time, updated_at: time };
  return { ...userPaths(times), ...orderPaths(times), ...systemPaths() };
}
