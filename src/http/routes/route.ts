/**
 * Routes. Each is defined once, with `route`, on an Elysia instance: its types, the OpenAPI document and typed clients
 * come from there. Elysia's router calls it, and it passes the request to the pipeline of the app.
 *
 * Two things are unusual for Elysia. The definition is an additional member of the hooks of a route, which Elysia passes
 * on unread to `app.routes`: there the app and the document find it. And `@elysiajs/bearer` is not used as a plugin,
 * which would read headers and query of each request before the pipeline (15 to 20 % of a GET): the function of its hook
 * is called when a token is extracted.
 */
import { type AnyElysia, Elysia } from "elysia";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import type { Token } from "../../domain/token.ts";
import type { Call, UncheckedCall } from "../input/call.ts";
import type { InputSchema } from "../input/input.ts";
import { noQuery } from "../input/query.ts";
import type { RouteDefinition, RouteEntry } from "../openapi/detail.ts";
import type { ResponseBody } from "../output/bodies.ts";
import type { Services } from "./services.ts";
import type { ClientRoute, Input } from "./typed-client.ts";

type CheckedCall<Definition extends RouteDefinition> = Call<
  Input<Definition["query"]>,
  Input<Definition["params"]>,
  Input<Definition["body"]>,
  Definition extends { readonly public: true } ? null : Token
>;

export type Route = RouteDefinition & {
  readonly query: InputSchema<unknown>;
  handler(call: UncheckedCall, services: Services): MaybePromise<ResponseBody>;
};

interface RouteContext {
  pipeline(route: Route, request: Request, params: unknown): MaybePromise<Response>;
  readonly request: Request;
  readonly params: unknown;
}

/** @returns an Elysia instance for routes. The app that uses it adds the pipeline, which only has a type here */
export function routesAt<const Prefix extends string>(prefix: Prefix, tag: string) {
  return new Elysia({ prefix, tags: [tag] }).decorate({} as Pick<RouteContext, "pipeline">);
}

/** `app.get(path, ...route(definition, handler))`. Elysia does not get the schemas: it would validate before authentication. */
export function route<const Definition extends RouteDefinition, Body extends ResponseBody>(
  definition: Definition,
  handler: (call: CheckedCall<Definition>, services: Services) => MaybePromise<Body>,
) {
  const defined: Route = { query: noQuery, ...definition, handler };
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
  return routes.map(({ method, path, hooks: { defined: route, detail } }) => {
    if (route === undefined) throw new Error(`${method} ${path} is not made by route()`);
    return { method, path, tags: detail.tags, route };
  });
}
