import { expect, test } from "bun:test";
import { createCors } from "../../src/http/cors.ts";
import { createDrain } from "../../src/http/drain.ts";
import { conditionalRecord, type ResponseHead, recordResponse } from "../../src/http/envelope.ts";
import { createResponder, type Respond, type ResponderOptions } from "../../src/http/lifecycle.ts";
import { createLog } from "../../src/log.ts";

const request = new Request("http://127.0.0.1:3000/api/v1/users/7");

function makeFinish(options: Partial<ResponderOptions> = {}) {
  return createResponder({
    log: createLog({ level: "silent", format: "json", now: () => new Date(), write() {} }),
    cors: null,
    metrics: { observeRequest() {} },
    drain: createDrain(),
    ...options,
  });
}

/** Calls `respond` with a record and these headers. */
function finished(finish: Respond, request_id: string, fields: Record<string, string> = {}) {
  const set: ResponseHead = { headers: {} };
  const body = recordResponse(set, { version: Number(request_id) });
  Object.assign(set.headers, fields);
  const start = { request_id, started_ms: performance.now() };
  return finish({ start, request, route: "/r", token: null, set, body });
}

test("`respond` gives each response its own headers when there are several", async () => {
  const finish = makeFinish();
  const responses = ["1", "2", "3"].map((id) => finished(finish, id));
  for (const [index, response] of responses.entries()) {
    const id = `${index + 1}`;
    expect(Object.fromEntries(response.headers)).toEqual({
      "content-type": "application/json",
      "cache-control": "private, no-cache",
      etag: `"${id}"`,
      "x-request-id": id,
    });
    expect(await response.json()).toEqual({ data: { version: index + 1 }, error: null });
  }
});

test("`respond` sends every header that is set, and none of them in the next response", () => {
  const finish = makeFinish();
  const usual = [...finished(finish, "1").headers.keys()];
  const more = { location: "/r/1", link: "" };
  const headers = Object.fromEntries(finished(finish, "1", more).headers);
  expect(headers).toMatchObject({ ...more, etag: '"1"', "x-request-id": "1" });
  for (const other of [{ "cache-control": "no-store" }, { "content-type": "text/csv" }]) {
    expect(Object.fromEntries(finished(finish, "1", other).headers)).toMatchObject(other);
  }
  expect([...finished(finish, "1").headers.keys()]).toEqual(usual);
});

test("`respond` does not change the headers of a response when it creates the next one", () => {
  const finish = makeFinish();
  const first = finished(finish, "1");
  const before = Object.fromEntries(first.headers);
  first.headers.set("x-more", "more");
  expect(finished(finish, "2").headers.has("x-more")).toBe(false);
  expect(Object.fromEntries(first.headers)).toEqual({ ...before, "x-more": "more" });
});

test("`respond` creates the same response on both of its paths", async () => {
  const draining = { ...createDrain(), isDraining: () => true };
  const [short, long] = [makeFinish(), makeFinish({ drain: draining })].map((finish) =>
    finished(finish, "1"),
  ) as [Response, Response];
  long.headers.delete("connection");
  expect(short.status).toBe(long.status);
  expect(Object.fromEntries(short.headers)).toEqual(Object.fromEntries(long.headers));
  expect(await short.text()).toBe(await long.text());
});

test("`respond` sends no body when the client already has the record", async () => {
  const finish = makeFinish();
  const set: ResponseHead = { headers: {} };
  const body = conditionalRecord(set, { version: 7 }, { if_match: null, if_none_match: "*" });
  const start = { request_id: "id", started_ms: performance.now() };
  const response = finish({ start, request, route: "/r", token: null, set, body });
  expect([response.status, await response.text()]).toEqual([304, ""]);
  expect(Object.fromEntries(response.headers)).toEqual({
    "cache-control": "private, no-cache",
    etag: '"7"',
    "x-request-id": "id",
  });
});

test("`respond` sends text and bytes unchanged", async () => {
  const finish = makeFinish();
  for (const body of ["a text", new TextEncoder().encode("some bytes")]) {
    const set: ResponseHead = { headers: {} };
    recordResponse(set, { version: 1 });
    const start = { request_id: "id", started_ms: performance.now() };
    const response = finish({ start, request, route: "/r", token: null, set, body });
    expect(await response.text()).toBe(typeof body === "string" ? body : "some bytes");
  }
});

test("`respond` adds CORS headers, and `Connection: close` while draining", () => {
  const cors = createCors(["https://a.example"]);
  expect(finished(makeFinish({ cors }), "1").headers.get("vary")).toBe("Origin");
  const drain = { ...createDrain(), isDraining: () => true };
  expect(finished(makeFinish({ drain }), "1").headers.get("connection")).toBe("close");
});

for (const [status, body] of [
  [200, { data: 1 }],
  [201, { data: 1 }],
  [204, null],
  [304, { data: 1 }],
  [404, "not found"],
  [500, "internal error"],
] as const) {
  test(`\`respond\` counts and logs a request once when its status is ${status}`, () => {
    const counted: unknown[] = [];
    const lines: string[] = [];
    const finish = makeFinish({
      log: createLog({
        level: "info",
        format: "json",
        now: () => new Date(),
        write: (line) => lines.push(line),
      }),
      metrics: { observeRequest: (...values) => counted.push(values) },
    });
    const start = { request_id: "id", started_ms: performance.now() };
    const set = { headers: {}, status };
    const response = finish({ start, request, route: "/r", token: null, set, body });
    expect(response.status).toBe(status);
    expect(counted).toEqual([["GET", "/r", status, expect.any(Number)]]);
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ event: "request", route: "/r", status });
  });
}
