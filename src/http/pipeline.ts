/**
 * The checks that each request passes before the handler of its route. `createPipeline` makes the handlers for Bun's router
 * and for Elysia's, because Elysia's hooks would make a GET more expensive.
 */
import { AppError, fail, failField } from "../base/error.ts";
import type { MaybePromise } from "../base/maybe-promise.ts";
import type { Token } from "../domain/token.ts";
import { expectedBytes, readBody } from "./input/body.ts";
import { createHostCheck } from "./input/host.ts";
import { requestIdOf } from "./input/request-id.ts";
import { requireScope } from "./limits/authentication.ts";
import { createClientScheduler } from "./limits/client-scheduler.ts";
import { createPendingWrites } from "./limits/pending-writes.ts";
import type { RequireWithinRate } from "./limits/rate-limit.ts";
import { createTurnLimit } from "./limits/turn-limit.ts";
import type { ResponseBody } from "./output/bodies.ts";
import { errorBody, type LogServerError } from "./output/errors.ts";
import type { Exchange, Respond } from "./respond.ts";
import { isPublic, type RouteEntry, type Services } from "./routes/route.ts";
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
export type HandleRequest = (request: Request, params: unknown) => MaybePromise<Response>;

interface PipelineOptions {
  readonly services: Services;
  readonly requireWithinRate: RequireWithinRate;
  readonly respond: Respond;
  readonly logServerError: LogServerError;
}

/** The checks of a request, then its handler. */
type Steps = (exchange: Exchange) => MaybePromise<ResponseBody>;

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
 *     write         503  the server is read-only, writes in progress
 *     schedule      503  other clients, while the event loop is busy
 *     readBody      415, 413, 400  media type, length, JSON
 *     parseAndCall  400  header fields for another method, parameters of the path, of the query, body
 *     handler       400  Idempotency-Key, If-Match, If-None-Match
 *                   404, 412, 409, 422, 503  what the store says
 */
export function createPipeline(options: PipelineOptions) {
  const { services, requireWithinRate, respond, logServerError } = options;
  const { readOnly, authenticate, unsentPages } = services;
  const requireHost = createHostCheck();
  const turnLimit = createTurnLimit();
  const schedule = createClientScheduler();
  const beginWrite = createPendingWrites();

  /** @returns the token, or `null` if the request needs none */
  function identify({ headers }: Request, needsToken: boolean): MaybePromise<Token | null> {
    if (!needsToken) return null;
    const token = authenticate(headers.get("authorization") ?? "");
    if (!(token instanceof Promise)) return token;
    const bytes = expectedBytes(headers);
    return bytes === 0 ? token : holdBody(token, bytes);
  }

  /** Counts the body of a request that waits for the look-up of its token, because Bun receives it meanwhile. */
  async function holdBody(token: Promise<Token>, bytes: number): Promise<Token> {
    // Its error must not be unhandled if there is no room for the body.
    token.catch(() => {});
    const end = beginWrite(null, bytes);
    try {
      return await token;
    } finally {
      end();
    }
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
      if (entry.method !== "GET") return write(exchange);
      const scheduled = schedule(token?.hash ?? null);
      return scheduled === null ? parseAndCall(exchange) : readLater(exchange, scheduled);
    }

    async function readLater(exchange: Exchange, scheduled: Promise<void>) {
      await scheduled;
      requireConnected(exchange.request);
      return parseAndCall(exchange);
    }

    async function write(exchange: Exchange) {
      const { request, token } = exchange;
      if (readOnly) fail("unavailable", "the server is read-only at the moment");
      const tokenHash = token?.hash ?? null;
      const end = beginWrite(tokenHash, expectedBytes(request.headers));
      try {
        await schedule(tokenHash);
        requireConnected(request);
        return await parseAndCall(exchange, definition.body && (await readBody(request)));
      } finally {
        end();
      }
    }

    function parseAndCall(exchange: Exchange, json?: unknown) {
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

  function finish(exchange: Exchange, body: ResponseBody): Response {
    const { request, token } = exchange;
    if (typeof body === "string" && token !== null && request.method === "GET") {
      try {
        unsentPages.add(request, token.hash, body);
      } catch (error) {
        return reject(exchange, error);
      }
    }
    return respond(exchange, body);
  }

  /** @param routeOf returns the route for metrics and the log */
  function handlerOf(routeOf: (request: Request) => string, steps: Steps): HandleRequest {
    function handleNow(request: Request, params: unknown): MaybePromise<Response> {
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
      let result: MaybePromise<ResponseBody>;
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
