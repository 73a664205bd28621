import { Elysia } from "elysia";
import { fail } from "../error.ts";
import { Order, OrderInput, OrderPatch, OrderQuery, orderFields, patchOrder } from "../order.ts";
import type { Store } from "../store.ts";
import type { Gate } from "./auth.ts";
import type { TakesBody } from "./body.ts";
import { created, page, record, show } from "./envelope.ts";
import { keyFor, noQuery, orderPath, query, readPreconditions } from "./params.ts";

export const orders_path = "/api/v1/orders";

/** @throws {AppError} order_not_found */
export function foundOrder(order: Order | null): Order {
  return order ?? fail("order_not_found", "order not found");
}

export function orders(store: Store, gate: Gate, takes: TakesBody) {
  return new Elysia({ prefix: orders_path })
    .use(gate)
    .get(
      "",
      async ({ query, set }) =>
        page<Order>(set, orders_path, query, await store.orders.list(query)),
      {
        query: query(OrderQuery),
      },
    )
    .get(
      "/:id",
      async ({ params, headers, set }) => {
        const accepted = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return show(set, foundOrder(await store.orders.get(params.id)), accepted);
      },
      { params: orderPath, query: noQuery },
    )
    .post(
      "",
      async ({ body, headers, owner, set }) => {
        const key = keyFor(headers["idempotency-key"], owner, orders_path, body);
        return created(set, orders_path, await store.orders.place(orderFields(body), key));
      },
      { query: noQuery, ...takes(OrderInput, Order) },
    )
    .patch(
      "/:id",
      async ({ params, body, headers, set }) => {
        const accepted = readPreconditions(headers["if-match"], headers["if-none-match"]);
        const edit = (order: Order) => patchOrder(order, body);
        return record(set, foundOrder(await store.orders.update(params.id, edit, accepted)));
      },
      { params: orderPath, query: noQuery, ...takes(OrderPatch, Order) },
    );
}
