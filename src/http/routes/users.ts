/** The routes of users. */
import { fail } from "../../base/error.ts";
import { andThen } from "../../base/maybe-promise.ts";
import type { RecordText } from "../../domain/record.ts";
import { patchUser, User, UserInput, UserPatch, UserQuery, userFields } from "../../domain/user.ts";
import { jsonBody } from "../input/body.ts";
import { preconditionsOf } from "../input/entity-tags.ts";
import { idempotencyKeyOf } from "../input/idempotency-key.ts";
import { userParams } from "../input/params.ts";
import { noQuery, querySchema } from "../input/query.ts";
import { createdDoc, envelopeDoc, pageDoc, recordDoc } from "../openapi/detail.ts";
import { conditionalRecordBody, createdBody, envelopeBody, pageBody } from "../output/bodies.ts";
import { changeRecord } from "./change-record.ts";
import { route, routesAt } from "./route.ts";

const usersPath = "/api/v1/users";

export function users() {
  return routesAt(usersPath, "users")
    .get("", ...listUsers)
    .get("/:id", ...getUser)
    .post("", ...createUser)
    .patch("/:id", ...updateUser)
    .put("/:id", ...replaceUser)
    .delete("/:id", ...deleteUser);
}

const time = "2026-11-20T18:57:03.120Z";
// Not that of the quick start: sending the example would be a 409.
const mia = { email: "mia@example.com", name: "Mia", metadata: { team: "blue" } };
const example: User = { id: 1, ...mia, version: 1, created_at: time, updated_at: time };
const changedExample: User = { ...example, name: null, version: 2 };

const userInput = jsonBody(UserInput, User);

/** @throws {AppError} not_found */
function requireUser(user: RecordText<User> | null): RecordText<User> {
  return user ?? fail("not_found", "user not found");
}

const listUsers = route(
  {
    query: querySchema(UserQuery),
    detail: {
      operationId: "listUsers",
      summary: "List users by id",
      description: "The `Link` header has the URLs of the other pages.",
      filters: { email: "Only the user with this email, in any spelling" },
      responses: { 200: pageDoc(User, example) },
    },
  },
  (call, { store }) =>
    andThen(store.users.list(call.query, call.token.hash), (page) =>
      pageBody<User>(call, usersPath, page),
    ),
);

const getUser = route(
  {
    params: userParams,
    query: noQuery,
    detail: {
      operationId: "getUser",
      summary: "Get a user",
      description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
      responses: { 200: recordDoc("The user", User, example) },
      errors: ["not_found", "version_mismatch"],
    },
  },
  (call, { store }) => {
    const preconditions = preconditionsOf(call.request);
    return andThen(store.users.get(call.params.id, call.token.hash), (user) =>
      conditionalRecordBody(call, requireUser(user), preconditions),
    );
  },
);

const createUser = route(
  {
    query: noQuery,
    body: userInput,
    detail: {
      operationId: "createUser",
      summary: "Create a user",
      description: "Returns 409 if another user has the email, in any spelling.",
      example: mia,
      responses: { 201: createdDoc(User, example) },
      errors: ["email_taken", "idempotency_key_reused"],
    },
  },
  async (call, { store }) => {
    const key = idempotencyKeyOf(call, usersPath);
    const created = await store.users.create(userFields(call.body), key, call.token.name);
    return createdBody(call, usersPath, created);
  },
);

const updateUser = route(
  {
    params: userParams,
    query: noQuery,
    body: jsonBody(UserPatch, User),
    detail: {
      operationId: "updateUser",
      summary: "Change some fields of a user",
      description:
        "JSON Merge Patch (RFC 7396): omitted fields keep their value. `null` clears `name`, all of `metadata`, " +
        "or one key of it. `{}` changes nothing, not even `version`.",
      example: { name: null },
      responses: { 200: recordDoc("The updated user", User, changedExample) },
      errors: ["not_found", "email_taken", "version_mismatch"],
    },
  },
  (call, { store }) =>
    changeRecord(call, store.users, (user) => patchUser(user, call.body), requireUser),
);

const replaceUser = route(
  {
    params: userParams,
    query: noQuery,
    body: userInput,
    detail: {
      operationId: "replaceUser",
      summary: "Replace a user",
      description:
        "Omitted fields get their default: `name` null, `metadata` `{}`. Never creates a user.",
      example: { email: mia.email, metadata: mia.metadata },
      responses: { 200: recordDoc("The updated user", User, changedExample) },
      errors: ["not_found", "email_taken", "version_mismatch"],
    },
  },
  (call, { store }) => changeRecord(call, store.users, () => userFields(call.body), requireUser),
);

const deleteUser = route(
  {
    params: userParams,
    query: noQuery,
    detail: {
      operationId: "deleteUser",
      summary: "Delete a user",
      description: "Returns 409 if the user has orders.",
      responses: { 200: envelopeDoc("The deleted user", User, example) },
      errors: ["not_found", "user_has_orders", "version_mismatch"],
    },
  },
  async ({ params, request, observed, token }, { store }) => {
    const user = await store.users.remove(params.id, preconditionsOf(request), token.name);
    const { id, json } = requireUser(user);
    observed.recordId = id;
    return envelopeBody(json);
  },
);
