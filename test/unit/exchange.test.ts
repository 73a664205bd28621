import { expect, test } from "bun:test";
import { createFinish } from "../../src/http/exchange.ts";
import { createLog } from "../../src/log.ts";

const request = new Request("http://127.0.0.1:3000/api/v1/users/7");

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
    const finish = createFinish({
      log: createLog({
        level: "info",
        format: "json",
        now: () => new Date(),
        write: (line) => lines.push(line),
      }),
      cors: null,
      metrics: { answered: (...values) => counted.push(values) },
      drain: { isDraining: () => false, headers: () => ({}), begin: async () => 0 },
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
