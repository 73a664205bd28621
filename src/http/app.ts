import { Elysia } from "elysia";
import type { JsonText } from "../domain/record.ts";
import type { JsonSchema } from "./input/input.ts";
import { documentJson } from "./openapi/document.ts";
import { createErrorHandler } from "./output/error-responses.ts";
import { handleRequest } from "./pipeline.ts";
import { changes } from "./routes/changes.ts";
import { docs } from "./routes/docs.ts";
import { orders } from "./routes/orders.ts";
import { type Route, routesOf } from "./routes/route.ts";
import { type AppOptions, createServices } from "./routes/services.ts";
import { system } from "./routes/system.ts";
import type { ClientApp } from "./routes/typed-client.ts";
import { users } from "./routes/users.ts";

/** All routes, in the order of the document. A route is public only if its definition says so. */
export function allRoutes() {
  return new Elysia().use(system()).use(docs()).use(users()).use(orders()).use(changes());
}

/** For typed clients: `treaty<App>` of Eden. */
export type App = ClientApp<ReturnType<typeof allRoutes>>;

export function openapiJson(version: string): JsonText<JsonSchema> {
  return documentJson(version, routesOf(allRoutes()));
}

export function createApp(options: AppOptions) {
  const table = allRoutes();
  const routes = routesOf(table);
  const services = createServices(options, routes);
  const paths = new Map(routes.map(({ path, route }) => [route, path]));
  const handle = (route: Route | null, request: Request, params: unknown) => {
    const path = route === null ? services.unmatched.routeOf(request) : (paths.get(route) ?? "");
    return handleRequest(services, route, path, request, params);
  };
  for (const { method, path } of routes) options.metrics.addRoute(method, path);
  const handleError = createErrorHandler(services.logServerError);
  return (
    new Elysia({
      strictPath: true,
      normalize: false,
      // With `standardHostname`, Elysia assumes that a host has at least three characters.
      handler: { standardHostname: false },
      // What Elysia does not catch.
      serve: { error: handleError },
    })
      // Before the routes, because a hook is only for those that follow it.
      .onError(({ error }) => handleError(error))
      .decorate("pipeline", handle)
      .use(table)
      // Otherwise it would be the order with this id.
      .patch("/api/v1/orders/sums", ({ request }) => handle(null, request, undefined))
      .all("/*", ({ request }) => handle(null, request, undefined))
  );
}
