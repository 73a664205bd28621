import { Elysia } from "elysia";
import { fail } from "../error.ts";
import { Order, OrderInput, OrderPatch, OrderQuery, orderFields, patchOrder } from "../order.ts";
import type { Store } from "../store.ts";
import type { Gate } from "./auth.ts";
import type { TakesBody } from "./body.ts";
import { type Answer, created, page, record } from "./envelope.ts";
import { keyFor, noQuery, orderPath, query, readIfMatch, readIfNoneMatch } from "./params.ts";

export const orders_path = "/api/v1/orders";

function found(order: Order | null): Order {
  return order ?? fail("order_not_found", "order not found");
}

/** @param if_none_match the header field: a client that has this version is told so, and no more */
export function showOrder(
  set: Answer,
  got: Order | null,
  if_none_match: string | null | undefined,
) {
  const isKnown = readIfNoneMatch(if_none_match);
  const order = found(got);
  if (isKnown(order.version)) set.status = 304;
  return record(set, order);
}

export function orders(store: Store, gate: Gate, takes: TakesBody) {
  return new Elysia({ prefix: orders_path })
    .use(gate)
    .get(
      "",
      async ({ query, set }) => page(set, orders_path, query, await store.orders.list(query)),
      {
        query: query(OrderQuery),
      },
    )
    .get(
      "/:id",
      async ({ params, headers, set }) =>
        showOrder(set, await store.orders.get(params.id), headers["if-none-match"]),
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
        const accepted = readIfMatch(headers["if-match"]);
        const edit = (order: Order) => patchOrder(order, body);
        return record(set, found(await store.orders.update(params.id, edit, accepted)));
      },
      { params: orderPath, query: noQuery, ...takes(OrderPatch, Order) },
    );
}
