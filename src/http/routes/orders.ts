import {
  Order,
  OrderInput,
  OrderPatch,
  OrderQuery,
  orderFields,
  patchOrder,
} from "../../domain/order.ts";
import { firstVersion } from "../../domain/record.ts";
import { boundsOf, OrderSum, SUM_MS, SumsQuery } from "../../domain/sums.ts";
import { jsonBody } from "../input/body.ts";
import { orderParams } from "../input/input.ts";
import { querySchema } from "../input/query.ts";
import { createdDoc, envelopeDoc, pageDoc, recordDoc } from "../openapi/detail.ts";
import { envelopeBody } from "../output/bodies.ts";
import { listChangesOf } from "./changes.ts";
import { createRecordHandlers } from "./records.ts";
import { route, routesAt } from "./route.ts";

const ordersPath = "/api/v1/orders";

export function orders() {
  return routesAt(ordersPath, "orders")
    .get("", ...listOrders)
    .get("/sums", ...sumOrders)
    .get("/:id", ...getOrder)
    .get(
      "/:id/changes",
      ...listChangesOf("orders", orderParams, "order_not_found", "invalid_order_id"),
    )
    .post("", ...createOrder)
    .patch("/:id", ...updateOrder);
}

const time = "2026-11-20T18:57:03.120Z";
const tea: OrderInput = {
  user_id: 1,
  currency: "EUR",
  reference: "2026-1042",
  items: [{ sku: "tea-01", name: "Green tea", quantity: 2, unit_price: 1999 }],
};
const example: Order = firstVersion(1, orderFields(tea), time);

const handlers = createRecordHandlers(
  ordersPath,
  (store) => store.orders,
  orderFields,
  "order_not_found",
);

const listOrders = route(
  {
    scopes: ["orders:read"],
    query: querySchema(OrderQuery),
    operationId: "listOrders",
    summary: "List orders by id",
    description: "The `Link` header has the URLs of the other pages.",
    response: pageDoc(Order, example),
  },
  handlers.list,
);

const sum: OrderSum = {
  ...{ from: "2026-10-31T23:00:00.000Z", to: "2026-11-30T23:00:00.000Z" },
  ...{ currency: "EUR", status: "paid", orders: 12, total: 47_976, refunded: 500 },
};

const sumOrders = route(
  {
    scopes: ["orders:read"],
    query: querySchema(SumsQuery),
    operationId: "sumOrders",
    summary: "Sum up orders by day or month",
    description:
      "For each interval, currency and status that has orders, in this order: their number, their total and what was " +
      "refunded. `created_from` and `created_to` cut the first and the last interval. One sum at a time is computed, " +
      "and at most one of a token: others wait, or return 503.",
    response: envelopeDoc("The sums", { type: "array", items: OrderSum }, [sum]),
  },
  async ({ query, token, request }, services) => {
    const bounds = boundsOf(query);
    services.connections.keepOpen(request, (3 * SUM_MS) / 1000);
    const add = () => services.store.sumOrders(bounds, token.hash);
    return envelopeBody(await services.queueSum(token.hash, request.signal, add));
  },
);

const getOrder = route(
  {
    scopes: ["orders:read"],
    params: orderParams,
    operationId: "getOrder",
    summary: "Get an order",
    description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
    response: recordDoc("The order", Order, example),
    errors: ["invalid_order_id", "order_not_found", "version_mismatch"],
  },
  handlers.get,
);

const createOrder = route(
  {
    scopes: ["orders:write"],
    body: jsonBody(OrderInput, Order),
    operationId: "createOrder",
    summary: "Create an order",
    description:
      "Creates an order in status `pending`. The server computes `total`, and returns 400 if it is below 0 or " +
      "exceeds 2^53 − 1, or if the user does not exist; 409 if another order has the reference. Items cannot be changed later.",
    example: tea,
    response: createdDoc(Order, example),
    errors: ["reference_taken", "idempotency_key_reused"],
  },
  handlers.create,
);

const updateOrder = route(
  {
    scopes: ["orders:write"],
    params: orderParams,
    body: jsonBody(OrderPatch, Order),
    operationId: "updateOrder",
    summary: "Change some fields of an order",
    description:
      "JSON Merge Patch (RFC 7396). The status changes from `pending` to `paid`, `shipped` and `delivered`, or " +
      "from `pending` or `paid` to `canceled`. The current status is accepted (200), and any other change returns " +
      "409 and names the allowed ones. `refunded` can only increase, up to `total`. With another `user_id`, the order " +
      "moves to that user.",
    example: { status: "paid" },
    response: recordDoc("The updated order", Order, { ...example, status: "paid", version: 2 }),
    errors: [
      "invalid_order_id",
      "order_not_found",
      "invalid_status_change",
      "invalid_refund",
      "reference_taken",
      "version_mismatch",
      "idempotency_key_reused",
    ],
  },
  (call, services) => handlers.update(call, services, (order) => patchOrder(order, call.body)),
);
