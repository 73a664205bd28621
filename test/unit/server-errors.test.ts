import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { AppError, type ErrorCode } from "../../src/error.ts";
import { errorBody, errorTemplates, logServerError } from "../../src/http/errors.ts";
import { createLog } from "../../src/log.ts";

function databaseError(): unknown {
  using db = new Database(":memory:");
  db.run("create table t (secret text unique)");
  db.run("insert into t values ('hunter2')");
  try {
    db.run("insert into t values ('hunter2')");
  } catch (error) {
    return error;
  }
  throw new Error("the constraint did not fail");
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
  test(`the response is only "internal error" when the error is ${what}`, () => {
    const head = { status: 200, headers: { etag: '"1"' } };
    expect(errorBody(head, error, "GET")).toBe("internal error");
    expect(head).toEqual({
      status: 500,
      headers: { "content-type": "text/plain; charset=utf-8" } as never,
    });
  });
}

function logged(error: unknown): Record<string, unknown>[] {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const log = createLog({ level: "debug", format: "json", now: () => new Date(0), write });
  logServerError(log, error, "request-1");
  return lines.map((line) => JSON.parse(line));
}

test("logServerError writes the reason and the stack when the error is a bug", () => {
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

test("logServerError writes the cause when the database is unavailable", () => {
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

test("logServerError writes a line when the thrown value is not an Error", () => {
  for (const [thrown, reason] of [
    [null, "null"],
    [undefined, "undefined"],
    ["text", "text"],
  ]) {
    expect(logged(thrown)).toMatchObject([{ event: "internal error", reason }]);
  }
});

test("logServerError writes nothing when the response is a 4xx", () => {
  for (const code of Object.keys(errorTemplates) as ErrorCode[]) {
    const error = new AppError(code, "a message");
    expect(logged(error), code).toHaveLength(errorTemplates[code].status < 500 ? 0 : 1);
  }
});
