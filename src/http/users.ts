import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { Store } from "../store.ts";
import { patchUser, User, UserInput, UserPatch, UserQuery, userFields } from "../user.ts";
import type { Authorization } from "./auth.ts";
import type { JsonBody } from "./body.ts";
import {
  conditionalRecord,
  createdResponse,
  envelope,
  pageResponse,
  recordResponse,
} from "./envelope.ts";
import { user_params } from "./params.ts";
import { readIdempotencyKey, readPreconditions } from "./preconditions.ts";
import { no_query, querySchema } from "./query.ts";

export const users_path = "/api/v1/users";

/** @throws {AppError} not_found */
export function foundUser(user: User | null): User {
  return user ?? fail("not_found", "user not found");
}

export function users(store: Store, authorization: Authorization, jsonBody: JsonBody) {
  return new Elysia({ prefix: users_path })
    .use(authorization)
    .get(
      "",
      async ({ query, set }) =>
        pageResponse<User>(set, users_path, query, await store.users.list(query)),
      {
        query: querySchema(UserQuery),
      },
    )
    .get(
      "/:id",
      async ({ params, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return conditionalRecord(set, foundUser(await store.users.get(params.id)), preconditions);
      },
      { params: user_params, query: no_query },
    )
    .post(
      "",
      async ({ body, headers, token_hash, set }) => {
        const key = readIdempotencyKey(headers["idempotency-key"], token_hash, users_path, body);
        return createdResponse(set, users_path, await store.users.create(userFields(body), key));
      },
      { query: no_query, ...jsonBody(UserInput, User) },
    )
    .patch(
      "/:id",
      async ({ params, body, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        const edit = (user: User) => patchUser(user, body);
        return recordResponse(
          set,
          foundUser(await store.users.update(params.id, edit, preconditions)),
        );
      },
      { params: user_params, query: no_query, ...jsonBody(UserPatch, User) },
    )
    .put(
      "/:id",
      async ({ params, body, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        const edit = () => userFields(body);
        return recordResponse(
          set,
          foundUser(await store.users.update(params.id, edit, preconditions)),
        );
      },
      { params: user_params, query: no_query, ...jsonBody(UserInput, User) },
    )
    .delete(
      "/:id",
      async ({ params, headers }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return envelope(foundUser(await store.users.remove(params.id, preconditions)));
      },
      { params: user_params, query: no_query },
    );
}
