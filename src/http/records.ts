/**
 * One record by its id, past Elysia: its hooks and checks were a fifth of what such a request costs. It is
 * made of the same parts as the routes are, and knows only plain requests, an id and no query, to a store
 * that reads at once.
 */
import type { Log } from "../log.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import { credentialsOf, type Identification, spend } from "./auth.ts";
import type { Answer } from "./envelope.ts";
import { refuse } from "./errors.ts";
import { begin, type Finish } from "./exchange.ts";
import { orders_path, showOrder } from "./orders.ts";
import type { Take } from "./rate.ts";
import { showUser, users_path } from "./users.ts";

export interface RecordsOptions extends Pick<Identification, "identifyAtOnce"> {
  readonly store: Pick<Store, "at_once">;
  readonly take: Take;
  readonly finish: Finish;
  readonly log: Log;
}

/** A whole URL: a strange Host can make a path of itself. Fifteen digits are exact. */
const RECORD = new RegExp(`^https?://[^/]+(${users_path}|${orders_path})/([1-9]\\d{0,14})$`);

/** What answers a request; Elysia's own type says only that it is a function. */
type Handle = (request: Request) => Response | Promise<Response>;

/** What a path has one of by each id. */
interface Kind {
  /** The pattern of the path of one. */
  readonly route: string;
  readonly show: (set: Answer, id: number, if_none_match: string | null) => unknown;
}

/** @returns for Elysia's `wrap`, which asks for each request who is to answer it */
export function records({ store, identifyAtOnce, take, finish, log }: RecordsOptions) {
  const reads = store.at_once;
  if (reads === null) return (elysia: () => unknown) => elysia as Handle;
  const identify = identifyAtOnce(reads);
  const kinds: Readonly<Record<string, Kind>> = {
    [users_path]: {
      route: `${users_path}/:id`,
      show: (set, id, if_none_match) => showUser(set, reads.user(id), if_none_match),
    },
    [orders_path]: {
      route: `${orders_path}/:id`,
      show: (set, id, if_none_match) => showOrder(set, reads.order(id), if_none_match),
    },
  };

  function answer(request: Request, { route, show }: Kind, id: number): Response {
    const { headers } = request;
    const begun = begin(headers.get("x-request-id"));
    const set: Answer = { headers: {} };
    let token: Token | null = null;
    let body: unknown;
    try {
      token = identify(credentialsOf(headers.get("authorization")));
      spend(take, token);
      body = show(set, id, headers.get("if-none-match"));
    } catch (error) {
      body = refuse(set, error, log, begun.request_id);
    }
    return finish({ begun, request, route, token, set, body });
  }

  return (elysia: () => unknown, request: Request): Handle => {
    const [, path = "", id] = request.method === "GET" ? (RECORD.exec(request.url) ?? []) : [];
    const kind = kinds[path];
    return kind === undefined ? (elysia as Handle) : () => answer(request, kind, Number(id));
  };
}
