/**
 * One record by its id, past Elysia: its hooks and checks were a fifth of what such a request costs. It is
 * made of the same parts as the routes are, and knows only plain requests: an id and no query.
 */
import { type Awaitable, chain, recover } from "../awaitable.ts";
import type { Log } from "../log.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import { credentialsOf, type Identify, spend } from "./auth.ts";
import type { Answer } from "./envelope.ts";
import { refuse } from "./errors.ts";
import { begin, type Finish } from "./exchange.ts";
import { orders_path, readOrder } from "./orders.ts";
import type { Take } from "./rate.ts";
import { readUser, users_path } from "./users.ts";

export interface RecordsOptions {
  readonly store: Store;
  readonly identify: Identify;
  readonly take: Take;
  readonly finish: Finish;
  readonly log: Log;
}

const reads = { [users_path]: readUser, [orders_path]: readOrder };

/** A whole URL: a strange Host can make a path of itself. Fifteen digits are exact. */
const RECORD = new RegExp(`^https?://[^/]+(${users_path}|${orders_path})/([1-9]\\d{0,14})$`);

/** What answers a request; Elysia's own type says only that it is a function. */
type Handle = (request: Request) => Awaitable<Response>;

/** For Elysia's `wrap`, which asks for each request who is to answer it. */
export function records({ store, identify, take, finish, log }: RecordsOptions) {
  return (elysia: () => unknown, request: Request): Handle => {
    const [, path, id] = request.method === "GET" ? (RECORD.exec(request.url) ?? []) : [];
    if (path === undefined) return elysia as Handle;
    return ({ headers }) => {
      const begun = begin(headers.get("x-request-id"));
      const set: Answer = { headers: {} };
      let token: Token | null = null;
      const answer = recover(
        () =>
          chain(identify(credentialsOf(headers.get("authorization"))), (known) => {
            token = known;
            spend(take, known);
            const read = reads[path as keyof typeof reads];
            return read(store, Number(id), headers.get("if-none-match"), set);
          }),
        (error) => refuse(set, error, log, begun.request_id),
      );
      return chain(answer, (body) =>
        finish({ begun, request, route: `${path}/:id`, token, set, body }),
      );
    };
  };
}
