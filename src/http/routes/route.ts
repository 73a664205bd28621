/**
 * Routes. Each is defined once, with `route`, on an Elysia instance: its types, the OpenAPI document and typed clients come
 * from there, and `pipeline.ts` makes its handlers.
 */
import type { AnyElysia } from "elysia";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import type { Store } from "../../domain/store.ts";
import type { Token } from "../../domain/token.ts";
import type { InputSchema, JsonSchema } from "../input/input.ts";
import type { Authenticate } from "../limits/authentication.ts";
import type { Connections } from "../limits/connections.ts";
import type { Drain } from "../limits/drain.ts";
import type { UnsentPages } from "../limits/unsent-pages.ts";
import type { WaitingClients } from "../limits/waiting-clients.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { Detail } from "../openapi/detail.ts";
import type { JsonBlob, ResponseBody, ResponseHead } from "../output/bodies.ts";
import type { ClientResponses } from "./typed-client.ts";

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
  /** Whether the server rejects all writes. */
  readonly readOnly: boolean;
  readonly metrics: Metrics;
  readonly drain: Drain;
  readonly connections: Connections;
  /** For a handler that has waited: the token of its request may not be valid any more. */
  readonly authenticate: Authenticate;
  /** Those that wait for changes. */
  readonly waitingClients: WaitingClients;
  readonly unsentPages: UnsentPages;
  /** @returns the OpenAPI document */
  readonly document: () => JsonBlob<JsonSchema>;
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

/**
 * Defines a route of an Elysia instance: `app.get(path, ...route(definition, handler))`. Elysia gets a function that
 * fails, so that no request can reach the handler without the checks of `createPipeline`.
 * @param handler returns the body of the response, and sets its status and headers in `head`
 */
export function route<const Definition extends RouteDefinition, Body extends ResponseBody>(
  definition: Definition,
  handler: (call: Call<Definition>) => MaybePromise<Body>,
) {
  const rejectUnchecked = (): ClientResponses<Definition, Body> => {
    throw new Error("requests are handled by the pipeline");
  };
  const { detail: _, ...inputs } = definition;
  return [rejectUnchecked, { ...inputs, definition, handler }] as const;
}

/** A route that was made by `route`, in `routes` of an Elysia instance. */
export interface RouteEntry {
  readonly method: string;
  /** As in `/api/v1/users/:id`. */
  readonly path: string;
  readonly hooks: {
    /** That of its Elysia instance. */
    readonly detail: { readonly tags: readonly string[] };
    readonly definition: RouteDefinition;
    readonly handler: (
      call: Omit<Call, "token"> & { readonly token: Token | null },
    ) => MaybePromise<ResponseBody>;
  };
}

/** @throws if a route of the Elysia instance was not made by `route` */
export function routesOf({ routes }: Pick<AnyElysia, "routes">): readonly RouteEntry[] {
  // Elysia's type of `hooks` is `any`.
  for (const { method, path, hooks } of routes) {
    if (hooks.definition === undefined) throw new Error(`${method} ${path} is not made by route()`);
  }
  return routes;
}

/** @returns whether the route needs no token */
export function isPublic({ hooks }: RouteEntry): boolean {
  return hooks.definition.detail.security !== undefined;
}
