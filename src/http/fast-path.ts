/**
 * The routes that are used most, GET of one record and POST, as native routes of Bun, which take precedence over Elysia's
 * routes of the same path. Elysia takes a fifth of the time of such a request. The steps and their order are those of
 * Elysia's routes, which remain for the OpenAPI document, the types of clients, and `app.handle`. Change both:
 * `fast-path.test.ts` compares them.
 */
import type { CreateResult, IdempotencyKey } from "../idempotency.ts";
import type { Log } from "../log.ts";
import { Order, OrderInput, orderFields } from "../order.ts";
import { createValidator, type Validate } from "../schema.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import { User, UserInput, userFields } from "../user.ts";
import { credentialsOf, requireScope, type TokenVerifier, type VerifyTokenSync } from "./auth.ts";
import type { ReadBody } from "./body.ts";
import { conditionalRecord, createdResponse, type ResponseHead } from "./envelope.ts";
import { handleError } from "./errors.ts";
import { createHostCheck } from "./host.ts";
import { type Respond, startRequest } from "./lifecycle.ts";
import { foundOrder, orders_path } from "./orders.ts";
import { type InputSchema, order_params, user_params } from "./params.ts";
import { readIdempotencyKey, readPreconditions } from "./preconditions.ts";
import { no_query } from "./query.ts";
import { enforceRateLimit, type RateLimiter } from "./rate-limit.ts";
import { foundUser, users_path } from "./users.ts";

export interface FastPathOptions extends TokenVerifier {
  readonly store: Pick<Store, "sync_reads" | "users" | "orders">;
  readonly readBody: ReadBody;
  readonly rateLimiter: RateLimiter | null;
  readonly respond: Respond;
  readonly log: Log;
}

type NativeRequest = Request & { readonly params: unknown };
type NativeHandler = (request: NativeRequest) => Response | Promise<Response>;

/** The handlers of a path by method. Bun also calls GET for HEAD, and leaves other methods to Elysia. */
export type NativeRoute = Readonly<Partial<Record<"GET" | "POST", NativeHandler>>>;

/** The steps between the token and the response. @returns the body. @throws {AppError} if the request is rejected */
type Steps<Body> = (request: NativeRequest, token: Token, set: ResponseHead) => Body;

type RecordParams = InputSchema<{ id: number }>;

/** @returns the native routes by path. GET is synchronous if the store can be read synchronously */
export function fastPath(options: FastPathOptions): Readonly<Record<string, NativeRoute>> {
  const { store, verifyToken, verifyTokenSync, readBody, rateLimiter, respond, log } = options;
  const { users, orders, sync_reads } = store;
  const requireHost = createHostCheck();

  const handleSync =
    (route: string, verify: VerifyTokenSync, steps: Steps<unknown>): NativeHandler =>
    (request) => {
      const { headers } = request;
      const start = startRequest(headers.get("x-request-id"));
      const set: ResponseHead = { headers: {} };
      let token: Token | null = null;
      let body: unknown;
      try {
        token = verify(credentialsOf(headers.get("authorization")), request);
        body = steps(request, token, set);
      } catch (error) {
        body = handleError(set, error, log, start.request_id);
      }
      return respond({ start, request, route, token, set, body });
    };

  const verify = verifyTokenSync ?? verifyToken;
  const handle =
    (route: string, steps: Steps<Promise<unknown>>): NativeHandler =>
    async (request) => {
      const { headers } = request;
      const start = startRequest(headers.get("x-request-id"));
      const set: ResponseHead = { headers: {} };
      let token: Token | null = null;
      let body: unknown;
      try {
        token = await verify(credentialsOf(headers.get("authorization")), request);
        body = await steps(request, token, set);
      } catch (error) {
        body = handleError(set, error, log, start.request_id);
      }
      return respond({ start, request, route, token, set, body });
    };

  /** @throws {AppError} invalid if `Host` is not valid; read_only_token, too_many_requests */
  function admit({ headers, method }: Request, token: Token): void {
    requireHost(headers.get("host"));
    requireScope(token, method);
    enforceRateLimit(rateLimiter, token);
  }

  /** The steps between the token and the record. @throws {AppError} if the request is rejected */
  function readInput(request: NativeRequest, token: Token, params: RecordParams) {
    admit(request, token);
    const { headers } = request;
    const { id } = params["~standard"].validate(request.params).value;
    no_query["~standard"].validate(request.url);
    const if_match = headers.get("if-match");
    return { id, preconditions: readPreconditions(if_match, headers.get("if-none-match")) };
  }

  /** @param read throws an `AppError` if there is no such record */
  const getSync =
    (params: RecordParams, read: (id: number) => User | Order): Steps<unknown> =>
    (request, token, set) => {
      const { id, preconditions } = readInput(request, token, params);
      return conditionalRecord(set, read(id), preconditions);
    };

  /** @param read rejects with an `AppError` if there is no such record */
  const get =
    (params: RecordParams, read: (id: number) => Promise<User | Order>): Steps<Promise<unknown>> =>
    async (request, token, set) => {
      const { id, preconditions } = readInput(request, token, params);
      return conditionalRecord(set, await read(id), preconditions);
    };

  /** Creates a record. @param path the path of its list */
  const post =
    <Input>(
      path: string,
      validate: Validate<Input>,
      create: (input: Input, key: IdempotencyKey | null) => Promise<CreateResult<User | Order>>,
    ): Steps<Promise<unknown>> =>
    async (request, token, set) => {
      admit(request, token);
      const body = await readBody(request);
      no_query["~standard"].validate(request.url);
      const input = validate(body);
      const idempotency_key = request.headers.get("idempotency-key");
      const key = readIdempotencyKey(idempotency_key, token.hash, path, input);
      return createdResponse(set, path, await create(input, key));
    };

  const user_route = `${users_path}/:id`;
  const order_route = `${orders_path}/:id`;

  function createGetters(): { readonly user: NativeHandler; readonly order: NativeHandler } {
    if (sync_reads === null || verifyTokenSync === null) {
      const readUser = async (id: number) => foundUser(await users.get(id));
      const readOrder = async (id: number) => foundOrder(await orders.get(id));
      return {
        user: handle(user_route, get(user_params, readUser)),
        order: handle(order_route, get(order_params, readOrder)),
      };
    }
    const readUser = (id: number) => foundUser(sync_reads.user(id));
    const readOrder = (id: number) => foundOrder(sync_reads.order(id));
    return {
      user: handleSync(user_route, verifyTokenSync, getSync(user_params, readUser)),
      order: handleSync(order_route, verifyTokenSync, getSync(order_params, readOrder)),
    };
  }

  const getters = createGetters();
  const createUser = post(users_path, createValidator(UserInput, User), (input, key) =>
    users.create(userFields(input), key),
  );
  const placeOrder = post(orders_path, createValidator(OrderInput, Order), (input, key) =>
    orders.place(orderFields(input), key),
  );
  return {
    [user_route]: { GET: getters.user },
    [order_route]: { GET: getters.order },
    [users_path]: { POST: handle(users_path, createUser) },
    [orders_path]: { POST: handle(orders_path, placeOrder) },
  };
}
