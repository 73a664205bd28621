/**
 * One record by its id, past Elysia, whose hooks and checks take as long as all else that such a request
 * needs. It is made of the same parts as the routes are, and knows only what is plain: an id, no query, a
 * valid token. All else goes on to Elysia, so that every refusal of a stranger has one place.
 */
import type { Log } from "../log.ts";
import type { Store } from "../store.ts";
import type { Token } from "../token.ts";
import { type Authenticate, credentialsOf } from "./auth.ts";
import type { Answer } from "./envelope.ts";
import { refuse } from "./errors.ts";
import { begin, type Finish } from "./exchange.ts";
import { readOrder } from "./orders.ts";
import type { Take } from "./rate.ts";
import { readUser } from "./users.ts";

export interface RecordsOptions {
  readonly store: Store;
  readonly authenticate: Authenticate;
  readonly take: Take;
  readonly finish: Finish;
  readonly log: Log;
}

const lists = {
  users: { read: readUser, route: "/api/v1/users/:id" },
  orders: { read: readOrder, route: "/api/v1/orders/:id" },
} as const;

/** A whole URL: a strange Host can make a path of itself. Fifteen digits are exact. */
const RECORD = /^https?:\/\/[^/?#]+\/api\/v1\/(users|orders)\/([1-9]\d{0,14})$/;

/** What answers a request; Elysia's own type says only that it is a function. */
type Handle = (request: Request) => Response | Promise<Response>;

/** For Elysia's `wrap`, which asks for each request who is to answer it. */
export function records({ store, authenticate, take, finish, log }: RecordsOptions) {
  return (handle: () => unknown, request: Request): Handle => {
    const elysia = handle as Handle;
    const [, list, id] = request.method === "GET" ? (RECORD.exec(request.url) ?? []) : [];
    if (list === undefined) return elysia;
    return async () => {
      const { read, route } = lists[list as keyof typeof lists];
      const { headers } = request;
      const begun = begin(headers.get("x-request-id"));
      const credentials = credentialsOf(headers.get("authorization"));
      const set: Answer = { headers: {} };
      let token: Token | null = null;
      let body: unknown;
      try {
        token = credentials === undefined ? null : await authenticate(credentials);
        if (token === null || !take(token.hash)) return elysia(request);
        body = await read(store, Number(id), headers.get("if-none-match"), set);
      } catch (error) {
        body = refuse(set, error, log, begun.request_id);
      }
      return finish({ begun, request, route, token, set, body });
    };
  };
}
