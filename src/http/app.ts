import { Elysia } from "elysia";
import { createExpiryLog } from "../base/expiry.ts";
import { type JsonText, jsonText } from "../domain/record.ts";
import { isSocketPath } from "../domain/settings.ts";
import { createAuthenticator } from "./input/authentication.ts";
import type { JsonSchema } from "./input/input.ts";
import { createResponseMemory, createWriteMemory } from "./limits/memory.ts";
import { createRateLimiter } from "./limits/rate-limit.ts";
import { createWaitingClients } from "./limits/waiting-clients.ts";
import { createYieldToClients } from "./limits/yielding.ts";
import { createDocument } from "./openapi/document.ts";
import type { JsonBlob } from "./output/bodies.ts";
import { createCors } from "./output/cors.ts";
import { createErrorHandler, createServerErrorLog } from "./output/error-responses.ts";
import { handleRequest, type Pipeline } from "./pipeline.ts";
import { changes } from "./routes/changes.ts";
import { docs } from "./routes/docs.ts";
import { orders } from "./routes/orders.ts";
import { type AppOptions, type Route, routesOf } from "./routes/route.ts";
import { system } from "./routes/system.ts";
import type { ClientApp } from "./routes/typed-client.ts";
import { users } from "./routes/users.ts";
import { createUnmatched } from "./unmatched.ts";

/** All routes, in the order of the document. A route is public only if its definition says so. */
export function allRoutes() {
  return new Elysia().use(system()).use(docs()).use(users()).use(orders()).use(changes());
}

/** For typed clients: `treaty<App>` of Eden. */
export type App = ClientApp<ReturnType<typeof allRoutes>>;

export function openapiJson(version: string, routes = routesOf(allRoutes())): JsonText<JsonSchema> {
  return jsonText(createDocument(version, routes));
}

export function createApp(options: AppOptions) {
  const { stores, config, metrics, drain, connections } = options;
  const cors = createCors(config.corsOrigin);
  const table = allRoutes();
  const routes = routesOf(table);
  const logServerError = createServerErrorLog(options.log);
  const unmatched = createUnmatched(cors, routes);
  const tokenExpiry = createExpiryLog("token", options.now, options.log);
  metrics.addValidity("token", tokenExpiry.first);
  let document: JsonBlob<JsonSchema> | null = null;
  const pipeline: Pipeline = {
    ...options,
    get store() {
      return stores.use();
    },
    cors,
    responseMemory: createResponseMemory(connections, isSocketPath(config.host)),
    ...createAuthenticator(stores.use, config, options.now, tokenExpiry),
    yieldToClients: createYieldToClients(),
    waitingClients: createWaitingClients(stores.subscribe, drain),
    // One `Blob`: Bun copies text for each response, so that clients that do not read would fill the memory.
    document: () => (document ??= new Blob([openapiJson(options.version, routes)])),
    unmatched,
    requireWithinRate: createRateLimiter(config.rateLimit),
    reserveWrite: createWriteMemory(),
    logServerError,
  };
  const paths = new Map(routes.map(({ path, hooks }) => [hooks.defined, path]));
  const handle = (route: Route | null, request: Request, params: unknown) => {
    const path = route === null ? unmatched.routeOf(request) : (paths.get(route) ?? "");
    return handleRequest(pipeline, route, path, request, params);
  };
  for (const { method, path } of routes) metrics.addRoute(method, path);
  const handleError = createErrorHandler(logServerError);
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
      .all("/*", ({ request }) => handle(null, request, undefined))
  );
}
