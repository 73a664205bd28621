/**
 * Routes, and the checks that each request passes before its handler. A route is defined once, with `route`, on an
 * Elysia instance: its types, the OpenAPI document and typed clients come from there. `createPipeline` makes the
 * handlers for Bun's router and for Elysia's. Elysia's hooks would take a fifth of the CPU time of a GET.
 */
import type { Log } from "../log.ts";
import type { Maybe } from "../maybe.ts";
import type { JsonText } from "../record.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import { type Authenticate, requireScope } from "./authentication.ts";
import type { ResponseHead } from "./bodies.ts";
import type { ReadBody } from "./body.ts";
import type { Drain } from "./drain.ts";
import { errorBody, logServerError } from "./errors.ts";
import { createHostCheck } from "./host.ts";
import type { InputSchema, JsonSchema } from "./input.ts";
import type { Metrics } from "./metrics.ts";
import type { Detail } from "./openapi/detail.ts";
import { type RateLimiter, requireWithinRate } from "./rate-limit.ts";
import { requestIdOf } from "./request-id.ts";
import type { Exchange, Respond, ResponseBody } from "./respond.ts";
import type { Outcome } from "./typed-client.ts";
import type { Unmatched } from "./unmatched.ts";

/** What a request may contain, and how the route is documented. */
export interface RouteDefinition {
  /** The parameters of the path, if it has any. */
  readonly params?: InputSchema<unknown>;
  readonly query: InputSchema<unknown>;
  /** By default, the request body is ignored. */
  readonly body?: InputSchema<unknown>;
  /** A route without `security: []` needs a token. One without an `operationId` is not in the document. */
  readonly detail: Detail | Pick<Detail, "security">;
}

type Input<Part> = Part extends InputSchema<infer Value> ? Value : undefined;

/** What handlers use, besides the request. */
export interface Services {
  readonly store: Store;
  readonly metrics: Metrics;
  readonly drain: Drain;
  /** @returns the OpenAPI document, as JSON */
  readonly document: () => JsonText<JsonSchema>;
}

/** A request that has passed all checks. */
export interface Call<Definition extends RouteDefinition = RouteDefinition> extends Services {
  readonly request: Request;
  readonly params: Input<Definition["params"]>;
  readonly query: Input<Definition["query"]>;
  readonly body: Input<Definition["body"]>;
  /** `null` if the route is public. */
  readonly token: Definition["detail"] extends { readonly security: readonly [] } ? null : Token;
  readonly head: ResponseHead;
}

/** A call of any route. */
interface AnyCall extends Omit<Call, "token"> {
  readonly token: Token | null;
}

/**
 * Defines a route of an Elysia instance: `app.get(path, ...route(definition, handler))`. Elysia gets a function that
 * fails, so that no request can reach the handler without the checks of `createPipeline`.
 * @param handler returns the body of the response, and sets its status and headers in `head`
 */
export function route<const Definition extends RouteDefinition, Body extends ResponseBody>(
  definition: Definition,
  handler: (call: Call<Definition>) => Maybe<Body>,
) {
  const unmounted = (): Outcome<Definition, Body> => {
    throw new Error("requests are handled by the pipeline");
  };
  const { detail: _, ...inputs } = definition;
  return [unmounted, { ...inputs, definition, handler }] as const;
}

/** An entry of `routes` of an Elysia instance whose routes are made by `route`. */
export interface RouteEntry {
  readonly method: string;
  /** As in `/api/v1/users/:id`. */
  readonly path: string;
  readonly hooks: {
    /** Of the Elysia instance. */
    readonly detail: { readonly tags: readonly string[] };
    readonly definition: RouteDefinition;
    readonly handler: (call: AnyCall) => Maybe<ResponseBody>;
  };
}

/** @returns whether the route needs no token */
export function isPublic({ hooks }: RouteEntry): boolean {
  return hooks.definition.detail.security !== undefined;
}

/** Handles a request. @param params those of Elysia's router; by default, those of Bun's */
export type HandleRequest = (request: Request, params?: unknown) => Maybe<Response>;

export interface PipelineOptions {
  readonly services: Services;
  readonly authenticate: Authenticate;
  readonly rateLimiter: RateLimiter | null;
  readonly readBody: ReadBody;
  readonly respond: Respond;
  readonly log: Log;
}

/** Makes the handlers of requests. */
export interface Pipeline {
  readonly handle: (route: RouteEntry) => HandleRequest;
  readonly handleUnmatched: (unmatched: Unmatched) => HandleRequest;
}

/** The checks of a request, then its handler. The first error is the response. */
type Steps = (exchange: Exchange, params: unknown) => Maybe<ResponseBody>;

/**
 * The checks in their order: 401, 400 for `Host`, then for unmatched requests 404 or 405, otherwise 403, 429, 415, 413,
 * 400, and those of the handler: 404, 412, 409. `andThen` would be easier to read, but as a function that all steps of
 * all routes share it is compiled for none of them: 10 % of a GET.
 */
export function createPipeline(options: PipelineOptions): Pipeline {
  const { authenticate, rateLimiter, readBody, respond, log } = options;
  const { store, metrics, drain, document } = options.services;
  const requireHost = createHostCheck();

  /** @returns the token, or `null` if the request needs none */
  function identify({ headers }: Request, needsToken: boolean): Maybe<Token | null> {
    return needsToken ? authenticate(headers.get("authorization")) : null; // 401
  }

  /** The checks that every request passes after the token. */
  function admit(exchange: Exchange, token: Token | null): void {
    exchange.token = token;
    requireHost(exchange.request.headers.get("host")); // 400
  }

  function unmatchedSteps(unmatched: Unmatched): Steps {
    return async (exchange) => {
      const { request } = exchange;
      admit(exchange, await identify(request, unmatched.needsToken(request)));
      return unmatched.handle(exchange); // 404, 405
    };
  }

  function routeSteps(entry: RouteEntry): Steps {
    const { definition, handler } = entry.hooks;
    const { params, query, body } = definition;
    const needsToken = !isPublic(entry);

    function authorize(exchange: Exchange, token: Token | null, routerParams: unknown) {
      const { request } = exchange;
      admit(exchange, token);
      if (token !== null) {
        requireScope(token, request.method); // 403
        requireWithinRate(rateLimiter, token); // 429
      }
      if (body === undefined) return handle(exchange, token, routerParams, undefined);
      const reading = readBody(request); // 415, 413, 400
      return reading.then((json) => handle(exchange, token, routerParams, json));
    }

    function handle(
      { request, head }: Exchange,
      token: Token | null,
      routerParams: unknown,
      json: unknown,
    ) {
      return handler({
        request,
        params: params?.parse(routerParams), // 400
        query: query.parse(request.url), // 400
        body: body?.parse(json), // 400
        token,
        head,
        store,
        metrics,
        drain,
        document,
      }); // 404, 412, 409
    }

    return (exchange, routerParams) => {
      const token = identify(exchange.request, needsToken);
      return token instanceof Promise
        ? token.then((found) => authorize(exchange, found, routerParams))
        : authorize(exchange, token, routerParams);
    };
  }

  function reject(exchange: Exchange, error: unknown): Response {
    const { request, requestId, head } = exchange;
    logServerError(log, error, requestId);
    return respond(exchange, errorBody(head, error, request.method));
  }

  /** @param routeOf returns the route for metrics and the log */
  function handlerOf(routeOf: (request: Request) => string, steps: Steps): HandleRequest {
    return (request, params = (request as Bun.BunRequest).params) => {
      const startedMs = performance.now();
      const requestId = requestIdOf(request.headers);
      const route = routeOf(request);
      const head = { status: 200, headers: {} };
      const exchange: Exchange = { request, requestId, startedMs, route, token: null, head };
      try {
        const result = steps(exchange, params);
        if (!(result instanceof Promise)) return respond(exchange, result);
        return result.then(
          (body) => respond(exchange, body),
          (error) => reject(exchange, error),
        );
      } catch (error) {
        return reject(exchange, error);
      }
    };
  }

  return {
    handle: (entry) => handlerOf(() => entry.path, routeSteps(entry)),
    handleUnmatched: (unmatched) => handlerOf(unmatched.routeOf, unmatchedSteps(unmatched)),
  };
}
