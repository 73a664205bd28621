/**
 * Native routes of Bun for GET of one record and for POST. They take precedence over Elysia's routes of the same path, and
 * save 10 to 20 % of the CPU time of a request. Elysia's routes remain for the OpenAPI document, typed clients and
 * `app.handle`. Their steps and the order are the same. Change both: `fast-path.test.ts` compares them.
 */
import type { CreateResult, IdempotencyKey } from "../idempotency.ts";
import type { Log } from "../log.ts";
import { andThen } from "../maybe.ts";
import { Order, OrderInput, orderFields } from "../order.ts";
import type { RecordText } from "../record.ts";
import { createValidator, type Validate } from "../schema.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import { User, UserInput, userFields } from "../user.ts";
import { credentialsOf, requireScope, type TokenVerifier, type VerifyTokenSync } from "./auth.ts";
import type { ReadBody } from "./body.ts";
import { conditionalRecord, createdResponse, type ResponseHead } from "./envelope.ts";
import { handleError } from "./errors.ts";
import { createHostCheck } from "./host.ts";
import { type HandledRequest, type Respond, startRequest } from "./lifecycle.ts";
import { foundOrder, orders_path } from "./orders.ts";
import { type InputSchema, order_params, user_params } from "./params.ts";
import { readIdempotencyKey, readPreconditions } from "./preconditions.ts";
import { no_query } from "./query.ts";
import { enforceRateLimit, type RateLimiter } from "./rate-limit.ts";
import { foundUser, users_path } from "./users.ts";

export interface FastPathOptions extends TokenVerifier {
  readonly store: Pick<Store, "users" | "orders"> & {
    readonly sync_reads: {
      user(id: number): RecordText<User> | null;
      order(id: number): RecordText<Order> | null;
    } | null;
  };
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

/**
 * Checks what follows the token: `Host`, scope and rate limit, in this order.
 * @throws {AppError} invalid, read_only_token, too_many_requests
 */
type AuthorizeRequest = (request: Request, token: Token) => void;

type RecordParams = InputSchema<{ id: number }>;

interface BegunRequest extends HandledRequest {
  token: Token | null;
  body: unknown;
}

/** @returns a request whose token and response body are not known yet */
function begin(request: Request, route: string): BegunRequest {
  const start = startRequest(request.headers.get("x-request-id"));
  return { start, request, route, token: null, set: { headers: {} }, body: undefined };
}

function createHandler(
  { verifyToken, verifyTokenSync, respond, log }: FastPathOptions,
  route: string,
  steps: Steps<Promise<unknown>>,
): NativeHandler {
  const verify = verifyTokenSync ?? verifyToken;
  return async (request) => {
    const handled = begin(request, route);
    try {
      const token = await verify(credentialsOf(request.headers.get("authorization")), request);
      handled.token = token;
      handled.body = await steps(request, token, handled.set);
    } catch (error) {
      handled.body = handleError(handled.set, error, log, handled.start.request_id);
    }
    return respond(handled);
  };
}

function createSyncHandler(
  { respond, log }: FastPathOptions,
  route: string,
  verify: VerifyTokenSync,
  steps: Steps<unknown>,
): NativeHandler {
  return (request) => {
    const handled = begin(request, route);
    try {
      const token = verify(credentialsOf(request.headers.get("authorization")), request);
      handled.token = token;
      handled.body = steps(request, token, handled.set);
    } catch (error) {
      handled.body = handleError(handled.set, error, log, handled.start.request_id);
    }
    return respond(handled);
  };
}

function createAuthorizer({ rateLimiter }: FastPathOptions): AuthorizeRequest {
  const requireHost = createHostCheck();
  return ({ headers, method }, token) => {
    requireHost(headers.get("host"));
    requireScope(token, method);
    enforceRateLimit(rateLimiter, token);
  };
}

/** @throws {AppError} invalid, invalid_order_id */
function readInput({ headers, params, url }: NativeRequest, schema: RecordParams) {
  const { id } = schema["~standard"].validate(params).value;
  no_query["~standard"].validate(url);
  const if_match = headers.get("if-match");
  return { id, preconditions: readPreconditions(if_match, headers.get("if-none-match")) };
}

/** @param read rejects with an `AppError` if there is no such record */
function getSteps(
  authorizeRequest: AuthorizeRequest,
  schema: RecordParams,
  read: (id: number) => Promise<User | Order>,
): Steps<Promise<unknown>> {
  return async (request, token, set) => {
    authorizeRequest(request, token);
    const { id, preconditions } = readInput(request, schema);
    return conditionalRecord(set, await read(id), preconditions);
  };
}

/** @param read throws an `AppError` if there is no such record */
function getSyncSteps(
  authorizeRequest: AuthorizeRequest,
  schema: RecordParams,
  read: (id: number) => User | Order,
): Steps<unknown> {
  return (request, token, set) => {
    authorizeRequest(request, token);
    const { id, preconditions } = readInput(request, schema);
    return conditionalRecord(set, read(id), preconditions);
  };
}

interface Creation<Input> {
  /** The path of the list. */
  readonly path: string;
  readonly validate: Validate<Input>;
  readonly create: (
    input: Input,
    key: IdempotencyKey | null,
  ) => Promise<CreateResult<User | Order>>;
}

function postSteps<Input>(
  authorizeRequest: AuthorizeRequest,
  readBody: ReadBody,
  { path, validate, create }: Creation<Input>,
): Steps<Promise<unknown>> {
  return async (request, token, set) => {
    authorizeRequest(request, token);
    const json = await readBody(request);
    no_query["~standard"].validate(request.url);
    const input = validate(json);
    const idempotency_key = request.headers.get("idempotency-key");
    const key = readIdempotencyKey(idempotency_key, token.hash, path, input);
    return createdResponse(set, path, await create(input, key));
  };
}

/** @returns the native routes by path. GET is synchronous if the store can be read synchronously */
export function fastPath(options: FastPathOptions): Readonly<Record<string, NativeRoute>> {
  const { readBody, verifyTokenSync } = options;
  const { users, orders, sync_reads } = options.store;
  const authorizeRequest = createAuthorizer(options);

  function createGet(
    route: string,
    schema: RecordParams,
    read: (id: number) => Promise<User | Order>,
    readSync: ((id: number) => User | Order) | null,
  ): NativeRoute {
    const GET =
      readSync === null || verifyTokenSync === null
        ? createHandler(options, route, getSteps(authorizeRequest, schema, read))
        : createSyncHandler(
            options,
            route,
            verifyTokenSync,
            getSyncSteps(authorizeRequest, schema, readSync),
          );
    return { GET };
  }

  function createPost<Input>(creation: Creation<Input>): NativeRoute {
    const steps = postSteps(authorizeRequest, readBody, creation);
    return { POST: createHandler(options, creation.path, steps) };
  }

  const user_route = `${users_path}/:id`;
  const order_route = `${orders_path}/:id`;
  return {
    [user_route]: createGet(
      user_route,
      user_params,
      async (id) => andThen(users.get(id), foundUser),
      sync_reads && ((id) => foundUser(sync_reads.user(id))),
    ),
    [order_route]: createGet(
      order_route,
      order_params,
      async (id) => andThen(orders.get(id), foundOrder),
      sync_reads && ((id) => foundOrder(sync_reads.order(id))),
    ),
    [users_path]: createPost<UserInput>({
      path: users_path,
      validate: createValidator(UserInput, User),
      create: (input, key) => users.create(userFields(input), key),
    }),
    [orders_path]: createPost<OrderInput>({
      path: orders_path,
      validate: createValidator(OrderInput, Order),
      create: (input, key) => orders.place(orderFields(input), key),
    }),
  };
}
