import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { AppError, type ErrorCode, failField, failInvalid } from "../../src/error.ts";
import { errorResponse, logServerError } from "../../src/http/errors.ts";
import { createLog } from "../../src/log.ts";
import { expectThrown } from "../expect-error.ts";

/** The body of a JSON error with this code. */
const envelope = (code: string) => ({ data: null, error: "a message", meta: { code } });
const internal = { status: 500, headers: {}, body: "internal error" };

const link = '</api/v1/docs>; rel="service-doc"';

/** Clients depend on these: within v1 a status or a `meta.code` may be added, but not changed. */
const expected_responses: Record<ErrorCode, ReturnType<typeof errorResponse>> = {
  invalid: { status: 400, headers: {}, body: envelope("validation_failed") },
  invalid_order_id: { status: 400, headers: {}, body: "invalid order id" },
  unauthorised: {
    status: 401,
    headers: { "www-authenticate": "Bearer", link },
    body: "unauthorised",
  },
  invalid_token: {
    status: 401,
    headers: { "www-authenticate": 'Bearer error="invalid_token"', link },
    body: "unauthorised",
  },
  read_only_token: {
    status: 403,
    headers: { "www-authenticate": 'Bearer error="insufficient_scope"' },
    body: envelope("read_only_token"),
  },
  not_found: { status: 404, headers: { link }, body: envelope("not_found") },
  order_not_found: { status: 404, headers: { link }, body: "order not found" },
  method_not_allowed: { status: 405, headers: {}, body: envelope("method_not_allowed") },
  email_taken: { status: 409, headers: {}, body: envelope("email_taken") },
  user_has_orders: { status: 409, headers: {}, body: envelope("user_has_orders") },
  invalid_status_change: { status: 409, headers: {}, body: envelope("invalid_status_change") },
  version_mismatch: { status: 412, headers: {}, body: envelope("version_mismatch") },
  payload_too_large: { status: 413, headers: {}, body: envelope("payload_too_large") },
  unsupported_media_type: { status: 415, headers: {}, body: envelope("unsupported_media_type") },
  key_reused: { status: 422, headers: {}, body: envelope("idempotency_key_reused") },
  too_many_requests: {
    status: 429,
    headers: { "retry-after": "1" },
    body: envelope("too_many_requests"),
  },
  unavailable: { status: 503, headers: { "retry-after": "1" }, body: envelope("unavailable") },
  token_name_taken: internal,
  damaged: internal,
  operator: internal,
};

for (const [code, expected] of Object.entries(expected_responses)) {
  test(`\`errorResponse\` returns ${expected.status} when the code is ${code}`, () => {
    const error = new AppError(code as ErrorCode, "a message");
    expect(errorResponse(error)).toEqual(expected);
  });
}

test("`errorResponse` lists all problems when the input is invalid", () => {
  const problems = [
    { field: "email", problem: "is required" },
    { field: "items[0].sku", problem: "is required" },
  ];
  const error = expectThrown(() => failInvalid(problems), "invalid");
  expect(errorResponse(error).body).toEqual({
    data: null,
    error: "Validation failed: email is required",
    meta: { code: "validation_failed", problems },
  });
  const one = expectThrown(() => failField("limit", "must be 1"), "invalid");
  expect(errorResponse(one).body).toEqual({
    data: null,
    error: "Validation failed: limit must be 1",
    meta: { code: "validation_failed", problems: [{ field: "limit", problem: "must be 1" }] },
  });
});

function databaseError(): unknown {
  using db = new Database(":memory:");
  db.run("create table t (secret text unique)");
  db.run("insert into t values ('hunter2')");
  try {
    db.run("insert into t values ('hunter2')");
  } catch (error) {
    return error;
  }
  throw new Error("the constraint has not held");
}

const foreign: [string, unknown][] = [
  ["an Error", new Error("hunter2")],
  ["an Error with a code of Elysia", Object.assign(new Error("hunter2"), { code: "NOT_FOUND" })],
  [
    "an Error with a status",
    Object.assign(new Error("hunter2"), { status: 404, code: "VALIDATION" }),
  ],
  [
    "an Error with an error code",
    Object.assign(new Error("hunter2"), { code: "invalid", problems: [] }),
  ],
  [
    "an Error named AppError",
    Object.assign(new Error("hunter2"), { name: "AppError", code: "email_taken" }),
  ],
  [
    "an object with the fields of an AppError",
    { name: "AppError", code: "email_taken", message: "hunter2", problems: [] },
  ],
  ["an error of the database", databaseError()],
  ["a Response", new Response("hunter2", { status: 404 })],
  ["an object with toResponse", { toResponse: () => new Response("hunter2") }],
  ["null", null],
  ["undefined", undefined],
  ["a string", "hunter2"],
  ["a number", 404],
  ["a symbol", Symbol("hunter2")],
];

for (const [what, error] of foreign) {
  test(`\`errorResponse\` returns only "internal error" when given ${what}`, () => {
    expect(errorResponse(error)).toEqual(internal);
  });
}

function logged(error: unknown): Record<string, unknown>[] {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const log = createLog({ level: "debug", format: "json", now: () => new Date(0), write });
  logServerError(log, error, "request-1");
  return lines.map((line) => JSON.parse(line));
}

test("`logServerError` writes the reason and the stack when the error is a bug", () => {
  const [line, ...rest] = logged(new Error("a bug"));
  expect(rest).toEqual([]);
  expect(line).toMatchObject({
    level: "error",
    event: "internal error",
    request_id: "request-1",
    reason: "a bug",
    stack: expect.stringContaining("errors.test.ts"),
  });
});

test("`logServerError` writes the cause when the database is unavailable", () => {
  const error = new AppError("unavailable", "a message");
  expect(logged(error)).toMatchObject([{ event: "unavailable", reason: "a message" }]);
  error.cause = new Error("disk full");
  expect(logged(error)).toMatchObject([
    {
      level: "error",
      event: "unavailable",
      request_id: "request-1",
      reason: "a message: disk full",
    },
  ]);
});

test("`logServerError` writes a line when the thrown value is not an Error", () => {
  for (const [thrown, reason] of [
    [null, "null"],
    [undefined, "undefined"],
    ["text", "text"],
  ]) {
    expect(logged(thrown)).toMatchObject([{ event: "internal error", reason }]);
  }
});

test("`logServerError` writes nothing when the response is a 4xx", () => {
  for (const [code, { status }] of Object.entries(expected_responses)) {
    const lines = logged(new AppError(code as ErrorCode, "a message"));
    expect(lines, code).toHaveLength(status < 500 ? 0 : 1);
  }
});
