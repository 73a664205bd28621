import { expect, test } from "bun:test";
import { createCors } from "../../src/http/cors.ts";
import { createDrain } from "../../src/http/drain.ts";
import { type Answer, record } from "../../src/http/envelope.ts";
import { createFinish, type Finish, type FinishOptions } from "../../src/http/exchange.ts";
import { createLog } from "../../src/log.ts";

const request = new Request("http://127.0.0.1:3000/api/v1/users/7");

function makeFinish(options: Partial<FinishOptions> = {}) {
  return createFinish({
    log: createLog({ level: "silent", format: "json", now: () => new Date(), write() {} }),
    cors: null,
    metrics: { answered() {} },
    drain: createDrain(),
    ...options,
  });
}

/** What `finish` makes of a record, and the fields it has. */
function finished(finish: Finish, request_id: string, fields: Record<string, string> = {}) {
  const set: Answer = { headers: {} };
  const body = record(set, { version: Number(request_id) });
  Object.assign(set.headers, fields);
  const begun = { request_id, started_ms: performance.now() };
  return finish({ begun, request, route: "/r", token: null, set, body });
}

test("`finish` gives each record its own fields when several are under way", async () => {
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

test("`finish` gives a record all that is set, and the next one nothing of it", () => {
  const finish = makeFinish();
  const usual = [...finished(finish, "1").headers.keys()];
  const more = { location: "/r/1", link: "" };
  const headers = Object.fromEntries(finished(finish, "1", more).headers);
  expect(headers).toMatchObject({ ...more, etag: '"1"', "x-request-id": "1" });
  const other = { "cache-control": "no-store", "content-type": "text/csv" };
  expect(Object.fromEntries(finished(finish, "1", other).headers)).toMatchObject(other);
  expect([...finished(finish, "1").headers.keys()]).toEqual(usual);
});

test("`finish` lets a client change the fields of one response, and no other", () => {
  const finish = makeFinish();
  const first = finished(finish, "1");
  first.headers.set("etag", "changed");
  first.headers.set("x-more", "more");
  const second = finished(finish, "1");
  expect([second.headers.get("etag"), second.headers.get("x-more")]).toEqual(['"1"', null]);
});

test("`finish` tells pages of a record who may read it, and clients that the server ends", () => {
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
  test(`\`finish\` counts and logs an exchange once when its status is ${status}`, () => {
    const counted: unknown[] = [];
    const lines: string[] = [];
    const finish = makeFinish({
      log: createLog({
        level: "info",
        format: "json",
        now: () => new Date(),
        write: (line) => lines.push(line),
      }),
      metrics: { answered: (...values) => counted.push(values) },
    });
    const begun = { request_id: "id", started_ms: performance.now() };
    const set = { headers: {}, status };
    const response = finish({ begun, request, route: "/r", token: null, set, body });
    expect(response.status).toBe(status);
    expect(counted).toEqual([["GET", "/r", status, expect.any(Number)]]);
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ event: "request", route: "/r", status });
  });
}
