/** Composes the app: public routes, routes that need a token, and the fallback for all other requests. */
import { Elysia } from "elysia";
import { type Config, readConfig } from "../config.ts";
import type { Log } from "../log.ts";
import type { Store } from "../store.ts";
import { authenticate, authorize, createTokenVerifier, normalizeAuthorization } from "./auth.ts";
import { createBodyReader, createJsonBody } from "./body.ts";
import { createCors } from "./cors.ts";
import { docs } from "./docs.ts";
import type { Drain } from "./drain.ts";
import { fallback } from "./fallback.ts";
import { fastPath } from "./fast-path.ts";
import { health } from "./health.ts";
import { publicHost } from "./host.ts";
import { createResponder, lifecycle } from "./lifecycle.ts";
import { type Metrics, metricsRoute } from "./metrics.ts";
import { createDocument, openapi, type Route } from "./openapi.ts";
import { orders } from "./orders.ts";
import { createAddressFinder, createInvalidTokenLimiter, createRateLimiter } from "./rate-limit.ts";
import type { ClientApp } from "./typed-client.ts";
import { users } from "./users.ts";

export interface AppOptions {
  readonly store: Store;
  readonly config: Config;
  readonly log: Log;
  readonly now: () => Date;
  readonly metrics: Metrics;
  readonly drain: Drain;
  /** The version of the program, e.g. `0.1.0`. */
  readonly version: string;
}

export function createApp({ store, config, log, now, metrics, drain, version }: AppOptions) {
  const cors = createCors(config.cors_origin);
  const { api_token, rate_limit, invalid_token_limit, client_address_header } = config;
  const { tokens } = store;
  const findAddress = createAddressFinder(client_address_header, () => app.server);
  const invalidTokenLimiter = createInvalidTokenLimiter(invalid_token_limit, findAddress);
  const verifier = createTokenVerifier({
    tokens,
    sync_reads: null,
    api_token,
    now,
    invalidTokenLimiter,
  });
  const rateLimiter = createRateLimiter(rate_limit);
  const authentication = authenticate(verifier, cors);
  const authorization = authorize(authentication, rateLimiter);
  const readBody = createBodyReader(config.max_body_bytes);
  const jsonBody = createJsonBody(readBody);
  const respond = createResponder({ log, cors, metrics, drain, rateLimiter });

  const public_app = new Elysia()
    .use(publicHost())
    .use(health(store, drain))
    .use(openapi(version, () => all_routes))
    .use(docs());
  const protected_app = new Elysia()
    .use(users(store, authorization, jsonBody))
    .use(orders(store, authorization, jsonBody))
    .use(metricsRoute(store, authorization, metrics));
  const all_routes: readonly Route[] = [...public_app.routes, ...protected_app.routes];

  const app = new Elysia({
    strictPath: true,
    normalize: false,
    // With `standardHostname`, Elysia assumes that a host has at least three characters.
    handler: { standardHostname: false },
    serve: {
      routes: fastPath({
        store: { ...store, sync_reads: null },
        ...verifier,
        readBody,
        rateLimiter,
        respond,
        log,
      }),
    },
  })
    .use(lifecycle(log, respond))
    .use(normalizeAuthorization())
    .use(public_app)
    .use(protected_app)
    .use(fallback(authentication, cors, public_app.routes, all_routes));
  return app;
}

/** For typed clients: `treaty<App>` of Eden. */
export type App = ClientApp<ReturnType<typeof createApp>>;

/** The OpenAPI document, as JSON. It describes the routes and calls none, so they get no store. */
export function openapiJson(version: string): string {
  const unused = { store: {}, now: () => new Date() } as AppOptions;
  const { routes } = createApp({ ...unused, config: readConfig({}), version });
  return JSON.stringify(createDocument(version, routes));
}
