/** The operations of the API document: one for each route. */
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
        summary: "List users, by id",
        description: "The header `Link` leads to the pages around this one.",
        scope: "read",
        parameters: queryParameters(UserQuery),
        responses: { 200: documentedPage(documented) },
      }),
      post: operation("users", {
        id: "createUser",
        summary: "Create a user",
        description: "An email that is taken, in whatever case, is a 409.",
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
        summary: "Read a user",
        description: "Its `ETag`, sent back as `If-Match`, keeps a change from being lost.",
        scope: "read",
        parameters: [id, if_match, ref("parameters", "IfNoneMatch")],
        responses: { 200: documentedRecord("The user", documented), 304: notModified() },
        errors: ["UserNotFound", "VersionMismatch"],
      }),
      patch: operation("users", {
        id: "updateUser",
        summary: "Change some fields of a user",
        description:
          "A JSON Merge Patch (RFC 7396): what is absent stays, `null` clears `name`, all of `metadata` or " +
          "one key of it. `{}` changes nothing, not even `version`.",
        scope: "write",
        parameters: [id, ...conditions, unused_key],
        body: patchBody(UserPatch, { name: null }),
        responses: { 200: documentedRecord("The user after the change", changed) },
        errors: ["UserNotFound", "EmailTaken", "VersionMismatch"],
      }),
      put: operation("users", {
        id: "replaceUser",
        summary: "Replace a user",
        description:
          "What is absent takes its default: `name` null, `metadata` `{}`. It never creates.",
        scope: "write",
        parameters: [id, ...conditions, unused_key],
        body: requestBody(UserInput, { email, metadata }),
        responses: { 200: documentedRecord("The user after the change", changed) },
        errors: ["UserNotFound", "EmailTaken", "VersionMismatch"],
      }),
      delete: operation("users", {
        id: "deleteUser",
        summary: "Delete a user",
        description: "A user who has orders is a 409: orders are never lost.",
        scope: "write",
        parameters: [id, ...conditions],
        responses: {
          200: jsonResponse(
            "The user as it was",
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
        summary: "List orders, by id",
        description: "The header `Link` leads to the pages around this one.",
        scope: "read",
        parameters: queryParameters(OrderQuery),
        responses: { 200: documentedPage(documented) },
      }),
      post: operation("orders", {
        id: "createOrder",
        summary: "Place an order",
        description:
          "It starts as `pending`; `total` is computed, and above 2^53 − 1 it is a 400, as is a `user_id` of " +
          "nobody. The items are never changed afterwards.",
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
        summary: "Read an order",
        description: "Its `ETag`, sent back as `If-Match`, keeps a change from being lost.",
        scope: "read",
        parameters: [id, if_match, ref("parameters", "IfNoneMatch")],
        responses: { 200: documentedRecord("The order", documented), 304: notModified() },
        errors: ["InvalidOrder", "OrderNotFound", "VersionMismatch"],
      }),
      patch: operation("orders", {
        id: "updateOrder",
        summary: "Change the status or the metadata of an order",
        description:
          "A JSON Merge Patch (RFC 7396). `pending` → `paid` → `shipped` → `delivered`, and `canceled` from the " +
          "first two; any other step is a 409 that names those that are allowed.",
        scope: "write",
        parameters: [
          id,
          if_match,
          ref("parameters", "ChangeIfNoneMatch"),
          ref("parameters", "UnusedIdempotencyKey"),
        ],
        body: patchBody(OrderPatch, { status: "paid" }),
        responses: {
          200: documentedRecord("The order after the change", {
            name: "Order",
            example: { ...example, status: "paid", version: 2 },
          }),
        },
        errors: ["InvalidOrder", "OrderNotFound", "InvalidStatusChange", "VersionMismatch"],
      }),
    },
  };
}

/** The headers of the page that shows the document. */
function docsPageHeaders(): Json {
  const same = (value: string) => header(`\`${value}\``, { type: "string", const: value }, value);
  return {
    "X-Request-Id": ref("headers", "RequestId"),
    "Cache-Control": same("no-cache"),
    ETag: header("Of this version of it", { type: "string", pattern: '^W/"' }, 'W/"7f3c"'),
    "Content-Security-Policy": header("Nothing of other hosts", { type: "string" }, "default-src"),
    "X-Content-Type-Options": same("nosniff"),
    "Referrer-Policy": same("no-referrer"),
  };
}

function systemPaths(): Json {
  return {
    "/api/v1/health": {
      get: operation("system", {
        id: "getHealth",
        summary: "Ask whether the service is well",
        description: "It is when it takes requests and can write its database.",
        scope: null,
        responses: {
          200: jsonResponse(
            "It does and can",
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
        summary: "Read figures for Prometheus",
        description: "Requests by route and status, their durations, commits, sizes, memory.",
        scope: "read",
        responses: {
          200: {
            description: "In the text format of Prometheus",
            headers: withCommonHeaders({}),
            content: { [METRICS_TYPE]: { schema: { type: "string" } } },
          },
        },
      }),
    },
    "/api/v1/openapi.json": {
      get: operation("system", {
        id: "getOpenapi",
        summary: "Read this document",
        description: "What `user-api openapi` prints, too.",
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
        summary: "Read this document as a page",
        description:
          "Requests can be tried there. The files of the page lie below it, public as well.",
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
          304: { description: "The page is still the same", headers: docsPageHeaders() },
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
