/**
 * GET of one record: native routes of Bun, which take precedence over Elysia's routes of the same path. Elysia's hooks
 * take a fifth of the time of such a request. The steps and their order are those of Elysia's routes, which remain for
 * the OpenAPI document, the types of clients, and `app.handle`. Change both: `fast-path.test.ts` compares them.
 */
import type { Log } from "../log.ts";
import type { Order } from "../order.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import type { User } from "../user.ts";
import { credentialsOf, type TokenVerifier, type VerifyTokenSync } from "./auth.ts";
import { conditionalRecord, type ResponseHead } from "./envelope.ts";
import { handleError } from "./errors.ts";
import { createHostCheck } from "./host.ts";
import { type Respond, startRequest } from "./lifecycle.ts";
import { foundOrder, orders_path } from "./orders.ts";
import { type InputSchema, order_params, user_params } from "./params.ts";
import { readPreconditions } from "./preconditions.ts";
import { no_query } from "./query.ts";
import { enforceRateLimit, type RateLimiter } from "./rate-limit.ts";
import { foundUser, users_path } from "./users.ts";

export interface FastPathOptions extends TokenVerifier {
  readonly store: Pick<Store, "sync_reads" | "users" | "orders">;
  readonly rateLimiter: RateLimiter | null;
  readonly respond: Respond;
  readonly log: Log;
}

type RecordRequest = Request & { readonly params: unknown };

export interface NativeRoute {
  /** Bun also calls it for HEAD. */
  readonly GET: (request: RecordRequest) => Response | Promise<Response>;
}

/** @returns the native routes by path. They are synchronous if the store can be read synchronously */
export function fastPath(options: FastPathOptions): Record<string, NativeRoute> {
  const { store, verifyToken, verifyTokenSync, rateLimiter, respond, log } = options;
  const reads = store.sync_reads;
  const requireHost = createHostCheck();

  /** The steps between the token and the record. @throws {AppError} if the request is rejected */
  function readInput(request: RecordRequest, token: Token, params: InputSchema<{ id: number }>) {
    const { headers } = request;
    requireHost(headers.get("host"));
    enforceRateLimit(rateLimiter, token);
    const { id } = params["~standard"].validate(request.params).value;
    no_query["~standard"].validate(request.url);
    const if_match = headers.get("if-match");
    return { id, preconditions: readPreconditions(if_match, headers.get("if-none-match")) };
  }

  /** @param read throws an `AppError` if there is no such record */
  const syncRoute = (
    route: string,
    params: InputSchema<{ id: number }>,
    verify: VerifyTokenSync,
    read: (id: number) => User | Order,
  ): NativeRoute => ({
    GET(request) {
      const { headers } = request;
      const start = startRequest(headers.get("x-request-id"));
      const set: ResponseHead = { headers: {} };
      let token: Token | null = null;
      let body: unknown;
      try {
        token = verify(credentialsOf(headers.get("authorization")), request);
        const { id, preconditions } = readInput(request, token, params);
        body = conditionalRecord(set, read(id), preconditions);
      } catch (error) {
        body = handleError(set, error, log, start.request_id);
      }
      return respond({ start, request, route, token, set, body });
    },
  });

  /** @param read rejects with an `AppError` if there is no such record */
  const asyncRoute = (
    route: string,
    params: InputSchema<{ id: number }>,
    read: (id: number) => Promise<User | Order>,
  ): NativeRoute => ({
    async GET(request) {
      const { headers } = request;
      const start = startRequest(headers.get("x-request-id"));
      const set: ResponseHead = { headers: {} };
      let token: Token | null = null;
      let body: unknown;
      try {
        token = await verifyToken(credentialsOf(headers.get("authorization")), request);
        const { id, preconditions } = readInput(request, token, params);
        body = conditionalRecord(set, await read(id), preconditions);
      } catch (error) {
        body = handleError(set, error, log, start.request_id);
      }
      return respond({ start, request, route, token, set, body });
    },
  });

  const user_route = `${users_path}/:id`;
  const order_route = `${orders_path}/:id`;
  if (reads === null || verifyTokenSync === null) {
    const readUser = async (id: number) => foundUser(await store.users.get(id));
    const readOrder = async (id: number) => foundOrder(await store.orders.get(id));
    return {
      [user_route]: asyncRoute(user_route, user_params, readUser),
      [order_route]: asyncRoute(order_route, order_params, readOrder),
    };
  }
  const readUser = (id: number) => foundUser(reads.user(id));
  const readOrder = (id: number) => foundOrder(reads.order(id));
  return {
    [user_route]: syncRoute(user_route, user_params, verifyTokenSync, readUser),
    [order_route]: syncRoute(order_route, order_params, verifyTokenSync, readOrder),
  };
}
