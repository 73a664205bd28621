import { Elysia } from "elysia";
import { fail } from "../error.ts";
import { Order, OrderInput, OrderPatch, OrderQuery, orderFields, patchOrder } from "../order.ts";
import type { Store } from "../store.ts";
import type { Authorization } from "./auth.ts";
import type { JsonBody } from "./body.ts";
import { conditionalRecord, createdResponse, pageResponse, recordResponse } from "./envelope.ts";
import { order_params } from "./params.ts";
import { readIdempotencyKey, readPreconditions } from "./preconditions.ts";
import { no_query, querySchema } from "./query.ts";

export const orders_path = "/api/v1/orders";

/** @throws {AppError} order_not_found */
export function foundOrder(order: Order | null): Order {
  return order ?? fail("order_not_found", "order not found");
}

export function orders(store: Store, authorization: Authorization, jsonBody: JsonBody) {
  return new Elysia({ prefix: orders_path })
    .use(authorization)
    .get(
      "",
      async ({ query, set }) =>
        pageResponse<Order>(set, orders_path, query, await store.orders.list(query)),
      {
        query: querySchema(OrderQuery),
      },
    )
    .get(
      "/:id",
      async ({ params, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return conditionalRecord(set, foundOrder(await store.orders.get(params.id)), preconditions);
      },
      { params: order_params, query: no_query },
    )
    .post(
      "",
      async ({ body, headers, token_hash, set }) => {
        const key = readIdempotencyKey(headers["idempotency-key"], token_hash, orders_path, body);
        return createdResponse(set, orders_path, await store.orders.place(orderFields(body), key));
      },
      { query: no_query, ...jsonBody(OrderInput, Order) },
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
      { params: order_params, query: no_query, ...jsonBody(OrderPatch, Order) },
    );
}
