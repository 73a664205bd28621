/**
 * One record by its id, past Elysia: its hooks and checks were a fifth of what such a request costs. It is
 * made of the same parts as the routes are, and knows only plain requests, an id and no query, to a store
 * that reads at once.
 */
import type { Log } from "../log.ts";
import type { Order } from "../order.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import type { User } from "../user.ts";
import { credentialsOf, type Identification, spend } from "./auth.ts";
import { type Answer, show } from "./envelope.ts";
import { refuse } from "./errors.ts";
import { begin, type Finish } from "./exchange.ts";
import { requireHost } from "./host.ts";
import { foundOrder, orders_path } from "./orders.ts";
import { readPreconditions } from "./params.ts";
import type { Take } from "./rate.ts";
import { foundUser, users_path } from "./users.ts";

export interface RecordsOptions extends Pick<Identification, "identifyAtOnce"> {
  readonly store: Pick<Store, "at_once">;
  readonly take: Take;
  readonly finish: Finish;
  readonly log: Log;
}

/** What answers a request; Elysia's own type says only that it is a function. */
type Handle = (request: Request) => Response | Promise<Response>;

/** One kind of record: its route, and how it is read by its id. */
interface Kind {
  /** The pattern of the path. */
  readonly route: string;
  /** @throws {AppError} not_found, order_not_found */
  readonly read: (id: number) => User | Order;
}

/** @returns for Elysia's `wrap`, which asks for each request who is to answer it */
export function records({ store, identifyAtOnce, take, finish, log }: RecordsOptions) {
  const reads = store.at_once;
  if (reads === null) return (elysia: () => unknown) => elysia as Handle;
  const identify = identifyAtOnce(reads);
  const kinds: Readonly<Record<string, Kind>> = {
    [users_path]: { route: `${users_path}/:id`, read: (id) => foundUser(reads.user(id)) },
    [orders_path]: { route: `${orders_path}/:id`, read: (id) => foundOrder(reads.order(id)) },
  };
  const paths = Object.keys(kinds).join("|");
  // A whole URL: a strange Host can make a path of itself. Fifteen digits are exact.
  const url_of_record = new RegExp(`^https?://[^/?#]+(${paths})/([1-9]\\d{0,14})$`);

  function answer(request: Request, { route, read }: Kind, id: number): Response {
    const { headers } = request;
    const begun = begin(headers.get("x-request-id"));
    const set: Answer = { headers: {} };
    let token: Token | null = null;
    let body: unknown;
    try {
      token = identify(credentialsOf(headers.get("authorization")));
      requireHost(headers.get("host"));
      spend(take, token);
      const if_match = headers.get("if-match");
      const preconditions = readPreconditions(if_match, headers.get("if-none-match"));
      body = show(set, read(id), preconditions);
    } catch (error) {
      body = refuse(set, error, log, begun.request_id);
    }
    return finish({ begun, request, route, token, set, body });
  }

  return (elysia: () => unknown, request: Request): Handle => {
    const [, path = "", id] =
      request.method === "GET" ? (url_of_record.exec(request.url) ?? []) : [];
    const kind = kinds[path];
    return kind === undefined ? (elysia as Handle) : () => answer(request, kind, Number(id));
  };
}
