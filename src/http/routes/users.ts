import { firstVersion } from "../../domain/record.ts";
import { patchUser, User, UserInput, UserPatch, UserQuery, userFields } from "../../domain/user.ts";
import { jsonBody } from "../input/body.ts";
import { userParams } from "../input/input.ts";
import { querySchema } from "../input/query.ts";
import { createdDoc, envelopeDoc, pageDoc, recordDoc } from "../openapi/detail.ts";
import { listChangesOf } from "./changes.ts";
import { createRecordHandlers } from "./records.ts";
import { route, routesAt } from "./route.ts";

const usersPath = "/api/v1/users";

export function users() {
  return routesAt(usersPath, "users")
    .get("", ...listUsers)
    .get("/:id", ...getUser)
    .get("/:id/changes", ...listChangesOf("users", userParams, "not_found"))
    .post("", ...createUser)
    .patch("/:id", ...updateUser)
    .put("/:id", ...replaceUser)
    .delete("/:id", ...deleteUser);
}

const time = "2026-11-20T18:57:03.120Z";
// Not that of the quick start: sending the example would be a 409.
const mia = {
  email: "mia@example.com",
  reference: "K-1042",
  name: "Mia",
  metadata: { team: "blue" },
};
const example: User = firstVersion(1, userFields(mia), time);
const changedExample: User = { ...example, name: null, version: 2 };

const userInput = jsonBody(UserInput, User);

const handlers = createRecordHandlers(usersPath, (store) => store.users, userFields, "not_found");

const listUsers = route(
  {
    scopes: ["users:read"],
    query: querySchema(UserQuery),
    operationId: "listUsers",
    summary: "List users by id",
    description: "The `Link` header has the URLs of the other pages.",
    response: pageDoc(User, example),
  },
  handlers.list,
);

const getUser = route(
  {
    scopes: ["users:read"],
    params: userParams,
    operationId: "getUser",
    summary: "Get a user",
    description: "Send the `ETag` back in `If-Match` with a change, to avoid lost updates.",
    response: recordDoc("The user", User, example),
    errors: ["not_found", "version_mismatch"],
  },
  handlers.get,
);

const createUser = route(
  {
    scopes: ["users:write"],
    body: userInput,
    operationId: "createUser",
    summary: "Create a user",
    description: "Returns 409 if another user has the email, in any spelling, or the reference.",
    example: mia,
    response: createdDoc(User, example),
    errors: ["email_taken", "reference_taken", "idempotency_key_reused"],
  },
  handlers.create,
);

const changeErrors = [
  "not_found",
  "email_taken",
  "reference_taken",
  "version_mismatch",
  "idempotency_key_reused",
] as const;

const updateUser = route(
  {
    scopes: ["users:write"],
    params: userParams,
    body: jsonBody(UserPatch, User),
    operationId: "updateUser",
    summary: "Change some fields of a user",
    description:
      "JSON Merge Patch (RFC 7396): omitted fields keep their value. `null` clears `name`, `reference`, all of `metadata`, " +
      "or one key of it. `{}` changes nothing, not even `version`.",
    example: { name: null },
    response: recordDoc("The updated user", User, changedExample),
    errors: changeErrors,
  },
  (call, services) => handlers.update(call, services, (user) => patchUser(user, call.body)),
);

const replaceUser = route(
  {
    scopes: ["users:write"],
    params: userParams,
    body: userInput,
    operationId: "replaceUser",
    summary: "Replace a user",
    description:
      "Omitted fields get their default: `name` null, `metadata` `{}`; only `reference` keeps its value. Never creates " +
      "a user.",
    example: { email: mia.email, metadata: mia.metadata },
    response: recordDoc("The updated user", User, changedExample),
    errors: changeErrors,
  },
  (call, services) =>
    handlers.update(call, services, ({ reference }) => userFields({ reference, ...call.body })),
);

const deleteUser = route(
  {
    scopes: ["users:write"],
    params: userParams,
    operationId: "deleteUser",
    summary: "Delete a user",
    description: "Returns 409 if the user has orders.",
    response: envelopeDoc("The deleted user", User, example),
    errors: ["not_found", "user_has_orders", "version_mismatch", "idempotency_key_reused"],
  },
  (call, { store }) => handlers.remove(call, store.users),
);
