import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { RecordText } from "../record.ts";
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
import { createdRecord, documented, enveloped, oneRecord, pageOf } from "./openapi.detail.ts";
import { user_params } from "./params.ts";
import { readIdempotencyKey, readPreconditions } from "./preconditions.ts";
import { no_query, querySchema } from "./query.ts";

export const users_path = "/api/v1/users";

const time = "2026-11-20T18:57:03.120Z";
const ann = { email: "ann@example.com", name: "Ann", metadata: { team: "blue" } };
const example: User = { id: 1, ...ann, version: 1, created_at: time, updated_at: time };
const changed_example: User = { ...example, name: null, version: 2 };

/** @throws {AppError} not_found */
export function foundUser(user: RecordText<User> | null): User {
  return user === null ? fail("not_found", "user not found") : JSON.parse(user.json);
}

export function users(store: Store, authorization: Authorization, jsonBody: JsonBody) {
  return new Elysia({ prefix: users_path, tags: ["users"] })
    .use(authorization)
    .get(
      "",
      async ({ query, set }) =>
        pageResponse<User>(set, users_path, query, await store.users.list(query)),
      documented({
        query: querySchema(UserQuery),
        detail: {
          operationId: "listUsers",
          summary: "List users by id",
          description: "The `Link` header has the URLs of the other pages.",
          filters: { email: "Only the user with this email, regardless of case" },
          responses: { 200: pageOf(User, example) },
        },
      }),
    )
    .get(
      "/:id",
      // Only `app.handle` uses this handler; a server uses `fast-path.ts`. Change both.
      async ({ params, headers, set }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return conditionalRecord(set, foundUser(await store.users.get(params.id)), preconditions);
      },
      documented({
        params: user_params,
        query: no_query,
        detail: {
          operationId: "getUser",
          summary: "Get a user",
          description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
          responses: { 200: oneRecord("The user", User, example) },
          errors: ["not_found", "version_mismatch"],
        },
      }),
    )
    .post(
      "",
      // Only `app.handle` uses this handler; a server uses `fast-path.ts`. Change both.
      async ({ body, headers, token_hash, set }) => {
        const key = readIdempotencyKey(headers["idempotency-key"], token_hash, users_path, body);
        return createdResponse(set, users_path, await store.users.create(userFields(body), key));
      },
      documented({
        query: no_query,
        ...jsonBody(UserInput, User),
        detail: {
          operationId: "createUser",
          summary: "Create a user",
          description: "Returns 409 if another user has the email, regardless of case.",
          example: ann,
          responses: { 201: createdRecord(User, example) },
          errors: ["email_taken", "key_reused"],
        },
      }),
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
      documented({
        params: user_params,
        query: no_query,
        ...jsonBody(UserPatch, User),
        detail: {
          operationId: "updateUser",
          summary: "Change some fields of a user",
          description:
            "JSON Merge Patch (RFC 7396): omitted fields keep their value. `null` clears `name`, all of `metadata`, " +
            "or one key of it. `{}` changes nothing, not even `version`.",
          example: { name: null },
          responses: { 200: oneRecord("The updated user", User, changed_example) },
          errors: ["not_found", "email_taken", "version_mismatch"],
        },
      }),
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
      documented({
        params: user_params,
        query: no_query,
        ...jsonBody(UserInput, User),
        detail: {
          operationId: "replaceUser",
          summary: "Replace a user",
          description:
            "Omitted fields get their default: `name` null, `metadata` `{}`. Never creates a user.",
          example: { email: ann.email, metadata: ann.metadata },
          responses: { 200: oneRecord("The updated user", User, changed_example) },
          errors: ["not_found", "email_taken", "version_mismatch"],
        },
      }),
    )
    .delete(
      "/:id",
      async ({ params, headers }) => {
        const preconditions = readPreconditions(headers["if-match"], headers["if-none-match"]);
        return envelope(foundUser(await store.users.remove(params.id, preconditions)));
      },
      documented({
        params: user_params,
        query: no_query,
        detail: {
          operationId: "deleteUser",
          summary: "Delete a user",
          description: "Returns 409 if the user has orders.",
          responses: { 200: enveloped("The deleted user", User, example) },
          errors: ["not_found", "user_has_orders", "version_mismatch"],
        },
      }),
    );
}
