import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { Store } from "../store.ts";
import { patchUser, User, UserInput, UserPatch, UserQuery, userFields } from "../user.ts";
import type { Gate } from "./auth.ts";
import type { TakesBody } from "./body.ts";
import { type Answer, created, envelope, page, record } from "./envelope.ts";
import { keyFor, noQuery, query, readIfMatch, readIfNoneMatch, userPath } from "./params.ts";

export const users_path = "/api/v1/users";

function found(user: User | null): User {
  return user ?? fail("not_found", "user not found");
}

/** @param if_none_match the header field: a client that has this version is told so, and no more */
export function showUser(set: Answer, got: User | null, if_none_match: string | null | undefined) {
  const isKnown = readIfNoneMatch(if_none_match);
  const user = found(got);
  if (isKnown(user.version)) set.status = 304;
  return record(set, user);
}

export function users(store: Store, gate: Gate, takes: TakesBody) {
  return new Elysia({ prefix: users_path })
    .use(gate)
    .get(
      "",
      async ({ query, set }) => page(set, users_path, query, await store.users.list(query)),
      {
        query: query(UserQuery),
      },
    )
    .get(
      "/:id",
      async ({ params, headers, set }) =>
        showUser(set, await store.users.get(params.id), headers["if-none-match"]),
      { params: userPath, query: noQuery },
    )
    .post(
      "",
      async ({ body, headers, owner, set }) => {
        const key = keyFor(headers["idempotency-key"], owner, users_path, body);
        return created(set, users_path, await store.users.create(userFields(body), key));
      },
      { query: noQuery, ...takes(UserInput, User) },
    )
    .patch(
      "/:id",
      async ({ params, body, headers, set }) => {
        const accepted = readIfMatch(headers["if-match"]);
        const edit = (user: User) => patchUser(user, body);
        return record(set, found(await store.users.update(params.id, edit, accepted)));
      },
      { params: userPath, query: noQuery, ...takes(UserPatch, User) },
    )
    .put(
      "/:id",
      async ({ params, body, headers, set }) => {
        const accepted = readIfMatch(headers["if-match"]);
        const edit = () => userFields(body);
        return record(set, found(await store.users.update(params.id, edit, accepted)));
      },
      { params: userPath, query: noQuery, ...takes(UserInput, User) },
    )
    .delete(
      "/:id",
      async ({ params, headers }) => {
        const accepted = readIfMatch(headers["if-match"]);
        return envelope(found(await store.users.remove(params.id, accepted)));
      },
      { params: userPath, query: noQuery },
    );
}
