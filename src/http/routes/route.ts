/**
 * Routes. Each is defined once, with `route`, on an Elysia instance: its types, the OpenAPI document and typed clients
 * come from there. Elysia's router calls it, and it passes the request to the pipeline of the app.
 */
import { type AnyElysia, Elysia } from "elysia";
import type { Log } from "../../base/log.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import type { Config } from "../../domain/config.ts";
import type { ReplaceableStore } from "../../domain/replaceable-store.ts";
import type { Store } from "../../domain/store.ts";
import type { ClientId, Token } from "../../domain/token.ts";
import type { Connections } from "../connections/connections.ts";
import type { Drain } from "../connections/drain.ts";
import type { Authenticate } from "../input/authentication.ts";
import type { Call, UncheckedCall } from "../input/call.ts";
import type { JsonSchema } from "../input/input.ts";
import { noQuery } from "../input/query.ts";
import type { ResponseMemory } from "../limits/memory.ts";
import type { WaitingClients } from "../limits/waiting-clients.ts";
import type { YieldToClients } from "../limits/yielding.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { RouteDefinition, RouteEntry } from "../openapi/detail.ts";
import type { JsonBlob, ResponseBody } from "../output/bodies.ts";
import type { Cors } from "../output/cors.ts";
import type { ClientRoute, Input } from "./typed-client.ts";

export interface AppOptions {
  readonly stores: ReplaceableStore;
  readonly config: Config;
  readonly log: Log;
  readonly now: () => Date;
  readonly metrics: Metrics;
  readonly drain: Drain;
  readonly connections: Connections;
  readonly version: string;
}

export interface Services extends AppOptions {
  /** That of the moment. Get it anew after waiting. @throws {AppError} unavailable if there is none */
  readonly store: Store;
  readonly cors: Cors | null;
  /** For a handler that has waited: the token of its request may not be valid any more. */
  readonly authenticate: Authenticate;
  /** @returns whose `Authorization` header it is if its token was valid when last used; `null` if that is not known */
  readonly clientOf: (authorization: string) => ClientId | null;
  readonly yieldToClients: YieldToClients;
  readonly waitingClients: WaitingClients;
  readonly responseMemory: ResponseMemory;
  readonly document: () => JsonBlob<JsonSchema>;
}

type CheckedCall<Definition extends RouteDefinition> = Call<
  Input<Definition["query"]>,
  Input<Definition["params"]>,
  Input<Definition["body"]>,
  Definition extends { readonly public: true } ? null : Token
>;

export interface Route {
  readonly definition: RouteDefinition & Required<Pick<RouteDefinition, "query">>;
  handler(call: UncheckedCall, services: Services): MaybePromise<ResponseBody>;
}

interface RouteContext {
  pipeline(route: Route, request: Request, params: unknown): MaybePromise<Response>;
  readonly request: Request;
  readonly params: unknown;
}

/** @returns an Elysia instance for routes. The app that uses it adds the pipeline, which only has a type here */
export function routesAt<const Prefix extends string>(prefix: Prefix, tag: string) {
  return new Elysia({ prefix, tags: [tag] }).decorate({} as Pick<RouteContext, "pipeline">);
}

/**
 * Defines a route of an Elysia instance: `app.get(path, ...route(definition, handler))`. Elysia does not have its
 * schemas: it would validate before authentication.
 */
export function route<const Definition extends RouteDefinition, Body extends ResponseBody>(
  definition: Definition,
  handler: (call: CheckedCall<Definition>, services: Services) => MaybePromise<Body>,
) {
  const defined: Route = { definition: { query: noQuery, ...definition }, handler };
  const handle = ({ pipeline, request, params }: RouteContext) =>
    pipeline(defined, request, params) as unknown as ClientRoute<Definition, Body>;
  // Elysia's type of hooks has no `defined`.
  const hooks: object = { defined };
  // Bound, because Elysia reads the source of a handler, and awaits what one that contains a call returns.
  return [handle.bind(null), hooks] as const;
}

/** @throws if a route of the Elysia instance was not made by `route`: it would have no checks */
export function routesOf({ routes }: Pick<AnyElysia, "routes">): readonly RouteEntry<Route>[] {
  // Elysia's type of `hooks` is `any`.
  for (const { method, path, hooks } of routes) {
    if (hooks.defined === undefined) throw new Error(`${method} ${path} is not made by route()`);
  }
  return routes;
}
