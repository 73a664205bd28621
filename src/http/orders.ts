import { Elysia } from "elysia";
import { fail } from "../error.ts";
import {
  newOrder,
  Order,
  OrderInput,
  OrderPatch,
  OrderQuery,
  orderFields,
  patchOrder,
} from "../order.ts";
import type { RecordText } from "../record.ts";
import type { Store } from "../store.ts";
import type { Authorization } from "./auth.ts";
import type { JsonBody } from "./body.ts";
import { conditionalRecord, createdResponse, pageResponse, recordResponse } from "./envelope.ts";
import { createdRecord, documented, oneRecord, pageOf } from "./openapi.detail.ts";
import { order_params } from "./params.ts";
import { readIdempotencyKey, readPreconditions } from "./preconditions.ts";
import { no_query, querySchema } from "./query.ts";

export const orders_path = "/api/v1/orders";

const time = "2026-11-20T18:57:03.120Z";
const placed: OrderInput = {
  user_id: 1,
  currency: "EUR",
  items: [{ sku: "tea-01", name: "Green tea", quantity: 2, unit_price: 1999 }],
};
const example = newOrder(1, orderFields(placed), time);

/** @throws {AppError} order_not_found */
export function foundOrder(order: RecordText<Order> | null): Order {
  return order === null ? fail("order_not_found", "order not found") : JSON.parse(order.json);
}

export function orders(store: Store, authorization: Authorization, jsonBody: JsonBody) {
  return new Elysia({ prefix: orders_path, tags: ["orders"] })
    .use(authorization)
    .get(
      "",
      async ({ query, set }) =>
        pageResponse<Order>(set, orders_path, query, await store.orders.list(query)),
      documented({
        query: querySchema(OrderQuery),
        detail: {
          operationId: "listOrders",
          summary: "List orders by id",
          description: "The `Link` header has the URLs of the other pages.",
          filters: {
            user_id: "Only orders of this user",
            status: "Only orders with this status",
          },
          responses: { 200: pageOf(Order, example) },
        },
      }),
    )
    .get(
      "/:id",
      // Only `app.handle` uses this handler; a server uses `fast-path.ts`. Change both.
      async ({ params, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return conditionalRecord(set, foundOrder(await store.orders.get(params.id)), preconditions);
      },
      documented({
        params: order_params,
        query: no_query,
        detail: {
          operationId: "getOrder",
          summary: "Get an order",
          description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
          responses: { 200: oneRecord("The order", Order, example) },
          errors: ["invalid_order_id", "order_not_found", "version_mismatch"],
        },
      }),
    )
    .post(
      "",
      // Only `app.handle` uses this handler; a server uses `fast-path.ts`. Change both.
      async ({ body, headers, token_hash, set }) => {
        const key = readIdempotencyKey(headers["idempotency-key"], token_hash, orders_path, body);
        return createdResponse(set, orders_path, await store.orders.place(orderFields(body), key));
      },
      documented({
        query: no_query,
        ...jsonBody(OrderInput, Order),
        detail: {
          operationId: "createOrder",
          summary: "Create an order",
          description:
            "Creates an order in status `pending`. The server computes `total`, and returns 400 if it exceeds " +
            "2^53 − 1 or if the user does not exist. Items cannot be changed later.",
          example: placed,
          responses: { 201: createdRecord(Order, example) },
          errors: ["key_reused"],
        },
      }),
    )
    .patch(
      "/:id",
      async ({ params, body, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        const edit = (order: Order) => patchOrder(order, body);
        return recordResponse(
          set,
          foundOrder(await store.orders.update(params.id, edit, preconditions)),
        );
      },
      documented({
        params: order_params,
        query: no_query,
        ...jsonBody(OrderPatch, Order),
        detail: {
          operationId: "updateOrder",
          summary: "Change the status or the metadata of an order",
          description:
            "JSON Merge Patch (RFC 7396). The status changes from `pending` to `paid`, `shipped` and `delivered`, or " +
            "from `pending` or `paid` to `canceled`. Any other change returns 409 and names the allowed ones.",
          example: { status: "paid" },
          responses: {
            200: oneRecord("The updated order", Order, { ...example, status: "paid", version: 2 }),
          },
          errors: [
            "invalid_order_id",
            "order_not_found",
            "invalid_status_change",
            "version_mismatch",
          ],
        },
      }),
    );
}
