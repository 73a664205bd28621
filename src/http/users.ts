import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { Store } from "../store.ts";
import { patchUser, User, UserInput, UserPatch, UserQuery, userFields } from "../user.ts";
import type { Gate } from "./auth.ts";
import type { TakesBody } from "./body.ts";
import { created, envelope, page, record, show } from "./envelope.ts";
import { keyFor, noQuery, query, readPreconditions, userPath } from "./params.ts";

export const users_path = "/api/v1/users";

/** @throws {AppError} not_found */
export function foundUser(user: User | null): User {
  return user ?? fail("not_found", "user not found");
}

export function users(store: Store, gate: Gate, takes: TakesBody) {
  return new Elysia({ prefix: users_path })
    .use(gate)
    .get(
      "",
      async ({ query, set }) => page<User>(set, users_path, query, await store.users.list(query)),
      {
        query: query(UserQuery),
      },
    )
    .get(
      "/:id",
      async ({ params, headers, set }) => {
        const accepted = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return show(set, foundUser(await store.users.get(params.id)), accepted);
      },
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
        const accepted = readPreconditions(headers["if-match"], headers["if-none-match"]);
        const edit = (user: User) => patchUser(user, body);
        return record(set, foundUser(await store.users.update(params.id, edit, accepted)));
      },
      { params: userPath, query: noQuery, ...takes(UserPatch, User) },
    )
    .put(
      "/:id",
      async ({ params, body, headers, set }) => {
        const accepted = readPreconditions(headers["if-match"], headers["if-none-match"]);
        const edit = () => userFields(body);
        return record(set, foundUser(await store.users.update(params.id, edit, accepted)));
      },
      { params: userPath, query: noQuery, ...takes(UserInput, User) },
    )
    .delete(
      "/:id",
      async ({ params, headers }) => {
        const accepted = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return envelope(foundUser(await store.users.remove(params.id, accepted)));
      },
      { params: userPath, query: noQuery },
    );
}
