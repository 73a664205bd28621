/**
 * The checks that each request passes before the handler of its route. `createPipeline` makes the handlers for Bun's router
 * and for Elysia's, because Elysia's hooks would make a GET more expensive.
 */
import { AppError, fail, failField } from "../error.ts";
import type { Maybe } from "../maybe.ts";
import { type ReserveMemory, reserveNothing } from "../record.ts";
import type { Token } from "../token.ts";
import { requireScope } from "./authentication.ts";
import { expectedBytes, type ReadBody, waitWithBody } from "./body.ts";
import { createClientScheduler } from "./client-scheduler.ts";
import { errorBody, type LogServerError } from "./errors.ts";
import { createHostCheck } from "./host.ts";
import { boundBody, isLong, type ResponseBody } from "./long-bodies.ts";
import type { PendingWrites } from "./pending-writes.ts";
import type { RequireWithinRate } from "./rate-limit.ts";
import { requestIdOf } from "./request-id.ts";
import type { Exchange, Respond } from "./respond.ts";
import { isPublic, type RouteEntry, type Services } from "./route.ts";
import { createTurnLimit } from "./turn-limit.ts";
import type { Unmatched } from "./unmatched.ts";

/** Fields that protect clients. A client that sends one with a method that ignores it believes that it is protected. */
const keys = ["Idempotency-Key"];
const preconditions = ["If-Match", "If-None-Match"];

/**
 * A client could keep the server busy with requests whose responses it does not wait for.
 * @throws {AppError} unavailable
 */
function requireConnected({ signal }: Request): void {
  if (signal.aborted) fail("unavailable", "the client has disconnected");
}

/** The status of a request whose client has disconnected, as in the log of nginx. It gets no response. */
const DISCONNECTED = 499;

/**
 * Bun sends the interim response only for `100-continue` in lower case; for anything else, clients would wait in vain.
 * @throws {AppError} expectation_failed
 */
function requireExpectation(expect: string | null): void {
  if (expect === null || expect === "100-continue") return;
  const message =
    'Expect must be exactly "100-continue", in lower case: send the body without waiting';
  fail("expectation_failed", message);
}

/** A request with a longer body does not wait for the next turn: without a token, bodies could fill the memory. */
const MAX_WAITING_BODY_BYTES = 2 ** 10;

/** Handles a request. @param params the parameters of its path */
export type HandleRequest = (request: Request, params: unknown) => Maybe<Response>;

interface PipelineOptions {
  readonly services: Services;
  readonly requireWithinRate: RequireWithinRate;
  readonly pendingWrites: PendingWrites;
  readonly readBody: ReadBody;
  readonly respond: Respond;
  readonly logServerError: LogServerError;
}

/** The checks of a request, then its handler. */
type Steps = (exchange: Exchange) => Maybe<ResponseBody>;

/**
 * Makes the handlers of requests. Each request passes these checks from top to bottom. The first error is the response.
 *
 *     turnLimit     –    waits for the next turn if this one has handled many requests
 *     identify      401  no valid token, unless the path is public
 *     admit         417  Expect
 *                   400  Host
 *     unmatched     404, 405
 *     authorize     403  scope
 *                   429  rate limit
 *     wait          503  other clients, while the event loop is busy
 *     write         503  the server is read-only, writes in progress
 *     readBody      415, 413, 503, 400  media type, length, bytes in progress, JSON
 *     parseAndCall  400  header fields for another method, parameters of the path, of the query, body
 *     handler       400  Idempotency-Key, If-Match, If-None-Match
 *                   404, 412, 409, 422, 503  what the store says
 */
export function createPipeline(options: PipelineOptions) {
  const { services, requireWithinRate, pendingWrites, readBody, respond, logServerError } = options;
  const { store, readOnly, authenticate, connections } = services;
  const requireHost = createHostCheck();
  const turnLimit = createTurnLimit();
  const schedule = createClientScheduler();

  /** @returns the token, or `null` if the request needs none */
  function identify({ headers }: Request, needsToken: boolean): Maybe<Token | null> {
    if (!needsToken) return null;
    const token = authenticate(headers.get("authorization") ?? "");
    if (!(token instanceof Promise)) return token;
    return waitWithBody(pendingWrites, token, headers, null);
  }

  function admit(exchange: Exchange, token: Token | null): void {
    const { headers } = exchange.request;
    exchange.token = token;
    requireExpectation(headers.get("expect"));
    requireHost(headers.get("host"));
  }

  function unmatchedSteps(unmatched: Unmatched): Steps {
    return async (exchange) => {
      const { request } = exchange;
      admit(exchange, await identify(request, unmatched.needsToken(exchange)));
      return unmatched.handle(exchange);
    };
  }

  function authorize(token: Token | null, method: string): void {
    if (token === null) return;
    requireScope(token, method);
    requireWithinRate(token.hash);
  }

  function routeSteps(entry: RouteEntry): Steps {
    const { definition, handler } = entry.hooks;
    const needsToken = !isPublic(entry);
    const allowed = entry.method === "POST" ? keys : preconditions;
    const misplaced = entry.method === "POST" ? preconditions : keys;

    function continueWith(exchange: Exchange, token: Token | null) {
      admit(exchange, token);
      authorize(token, exchange.request.method);
      const scheduled = schedule(token?.hash ?? null);
      return scheduled === null ? readOrWrite(exchange) : wait(scheduled, exchange);
    }

    async function wait(scheduled: Promise<void>, exchange: Exchange) {
      const { request, token } = exchange;
      await waitWithBody(pendingWrites, scheduled, request.headers, token?.hash ?? null);
      requireConnected(request);
      return readOrWrite(exchange);
    }

    function readOrWrite(exchange: Exchange) {
      return entry.method === "GET"
        ? parseAndCall(exchange, undefined, reserveNothing)
        : write(exchange);
    }

    async function write(exchange: Exchange) {
      const { request, token } = exchange;
      if (readOnly) fail("unavailable", "the server is read-only at the moment");
      const pending = pendingWrites.begin(token?.hash ?? null);
      try {
        const json = definition.body && (await readBody(request, pending));
        const reserve = (bytes: number) => {
          // A write of a large record may have waited for long.
          requireConnected(request);
          pending.reserve(bytes);
        };
        const result = await parseAndCall(exchange, json, reserve);
        return isLong(result) ? boundBody({ request, connections }, result, pending.hold) : result;
      } finally {
        pending.end();
      }
    }

    function parseAndCall(exchange: Exchange, json: unknown, reserve: ReserveMemory) {
      const { request, params, token, head } = exchange;
      const found = entry.method !== "GET" && misplaced.find((name) => request.headers.has(name));
      if (found)
        failField(found, "not_allowed", `is not allowed with ${entry.method}`, { allowed });
      return handler({
        ...services,
        request,
        params: definition.params?.parse(params),
        query: definition.query.parse(request.url),
        body: definition.body?.parse(json),
        token,
        head,
        reserve,
      });
    }

    return (exchange) => {
      const token = identify(exchange.request, needsToken);
      // Not `andThen`: JavaScriptCore could not inline a call that all routes share.
      return token instanceof Promise
        ? token.then((found) => continueWith(exchange, found))
        : continueWith(exchange, token);
    };
  }

  function reject(exchange: Exchange, error: unknown): Response {
    const { request, requestId, head } = exchange;
    const body = errorBody(head, error, request.method);
    if (error instanceof AppError && head.status === 401) exchange.denial = error;
    // Neither a failure of the server nor a reason for an alert.
    if (error instanceof AppError && request.signal.aborted) head.status = DISCONNECTED;
    else logServerError(error, requestId);
    return respond(exchange, body);
  }

  /** Bounds the body of a read. `write` has bounded its own. */
  function finish(exchange: Exchange, body: ResponseBody): Response {
    const { request, token } = exchange;
    if (!isLong(body) || request.method !== "GET") return respond(exchange, body);
    const hold = (bytes: number) => store.holdBody(bytes, token?.hash);
    let bounded: ResponseBody;
    try {
      bounded = boundBody({ request, connections }, body, hold);
    } catch (error) {
      return reject(exchange, error);
    }
    return respond(exchange, bounded);
  }

  /** @param routeOf returns the route for metrics and the log */
  function handlerOf(routeOf: (request: Request) => string, steps: Steps): HandleRequest {
    function handleNow(request: Request, params: unknown): Maybe<Response> {
      const exchange: Exchange = {
        request,
        params,
        startedMs: performance.now(),
        requestId: requestIdOf(request.headers),
        route: routeOf(request),
        token: null,
        denial: null,
        head: { status: 200, headers: {} },
      };
      let result: Maybe<ResponseBody>;
      try {
        result = steps(exchange);
      } catch (error) {
        return reject(exchange, error);
      }
      if (!(result instanceof Promise)) return finish(exchange, result);
      return result.then(
        (body) => finish(exchange, body),
        (error) => reject(exchange, error),
      );
    }

    return (request, params) => {
      const nextTurn = turnLimit();
      // Bun receives the body meanwhile. One turn reads few long ones.
      const mayWait = nextTurn !== null && expectedBytes(request.headers) <= MAX_WAITING_BODY_BYTES;
      return mayWait ? nextTurn.then(() => handleNow(request, params)) : handleNow(request, params);
    };
  }

  return {
    handle: (entry: RouteEntry) => handlerOf(() => entry.path, routeSteps(entry)),
    handleUnmatched: (unmatched: Unmatched) =>
      handlerOf(unmatched.routeOf, unmatchedSteps(unmatched)),
  };
}
