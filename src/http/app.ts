/** Composes the routes. What stands before the guard is public; all that follows is not. */
import { Elysia } from "elysia";
import type { Config } from "../config.ts";
import type { Log } from "../log.ts";
import type { Store } from "../store.ts";
import { createGate, createGuard, createIdentify, oneSpelling } from "./auth.ts";
import { bodyLimitedTo } from "./body.ts";
import { createCors } from "./cors.ts";
import { docs } from "./docs.ts";
import type { Drain } from "./drain.ts";
import { createFinish, exchange } from "./exchange.ts";
import { fallback } from "./fallback.ts";
import { health } from "./health.ts";
import { publicHost } from "./host.ts";
import { type Metrics, metricsRoute } from "./metrics.ts";
import { openapi } from "./openapi.ts";
import { orders } from "./orders.ts";
import { createRateLimit } from "./rate.ts";
import { records } from "./records.ts";
import { users } from "./users.ts";

export interface AppOptions {
  readonly store: Store;
  readonly config: Config;
  readonly log: Log;
  readonly now: () => Date;
  readonly metrics: Metrics;
  readonly drain: Drain;
  /** Of the program. */
  readonly version: string;
}

export function createApp({ store, config, log, now, metrics, drain, version }: AppOptions) {
  const cors = createCors(config.cors_origin);
  const { api_token, rate_limit, max_body_bytes } = config;
  const { identify, identifyAtOnce } = createIdentify({ tokens: store.tokens, api_token, now });
  const take = createRateLimit(rate_limit);
  const guard = createGuard(identify, cors);
  const gate = createGate(guard, take);
  const takes = bodyLimitedTo(max_body_bytes);
  const finish = createFinish({ log, cors, metrics, drain });

  const open = new Elysia()
    .use(publicHost())
    .use(health(store, drain))
    .use(openapi(version))
    .use(docs());
  const guarded = new Elysia()
    .use(users(store, gate, takes))
    .use(orders(store, gate, takes))
    .use(metricsRoute(store, gate, metrics));
  const routes = [...open.routes, ...guarded.routes];

  // Elysia cuts the path behind a host of three characters or more unless told otherwise.
  return new Elysia({ strictPath: true, normalize: false, handler: { standardHostname: false } })
    .wrap(records({ store, identifyAtOnce, take, finish, log }))
    .use(exchange(log, finish))
    .use(oneSpelling())
    .use(open)
    .use(guarded)
    .use(fallback(guard, cors, open.routes, routes));
}

export type App = ReturnType<typeof createApp>;
