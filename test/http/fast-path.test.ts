import { afterAll, describe, expect, test } from "bun:test";
import { newOrder, newUser } from "./make.ts";
import { logs, startServer, type TestServer } from "./server.ts";

const ORIGIN = "https://app.example.com";

/** @returns the bytes of the answer, but for the time, and what the log tells, but for the time */
async function ask(
  server: TestServer,
  path: string,
  headers: Record<string, string>,
  method = "GET",
) {
  const id = `r-${crypto.randomUUID()}`;
  const fields = { host: "127.0.0.1", connection: "close", ...headers, "x-request-id": id };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
  const answer = await server.raw(
    `${method} /api/v1/${path} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`,
  );
  const line = (await logs(server)).find(({ request_id }) => request_id === id);
  expect(line).toBeDefined();
  return {
    answer: answer.replaceAll(id, "id").replace(/^date: .*\r\n/im, ""),
    log: { ...line, time: null, duration_ms: null, request_id: null },
  };
}

// What pages may not ask is answered by fewer steps.
for (const [where, settings] of [
  ["", {}],
  [" where pages may ask", { CORS_ORIGIN: ORIGIN }],
] as const) {
  describe(`a record${where}`, async () => {
    const server = await startServer(settings);
    afterAll(() => server.stop());
    const user = await newUser(server, { name: "Ann", metadata: { plan: "basic" } });
    const order = await newOrder(server, user.id);
    const valid = { authorization: `Bearer ${server.write_token}` };

    const paths = [
      `users/${user.id}`,
      `orders/${order.id}`,
      "users/999999999999999",
      "orders/999999999999999",
      "users/9999999999999999",
      "orders/9999999999999999",
      "users/99999999999999999999",
      "orders/99999999999999999999",
      `users/0${user.id}`,
      `orders/0${order.id}`,
      `orders/+${order.id}`,
      "users/0",
      "users/abc",
      "orders/abc",
    ];

    const requests: [what: string, headers: Record<string, string>][] = [
      ["a token", valid],
      ["a token that may only read", { authorization: `Bearer ${server.read_token}` }],
      ["no token", {}],
      ["a wrong token", { authorization: `Bearer ${"x".repeat(40)}` }],
      ["two tokens", { authorization: `Bearer ${server.write_token}, Bearer x` }],
      ["another scheme", { authorization: `Basic ${server.write_token}` }],
      ["a scheme in other letters", { authorization: `bEARER   ${server.write_token}  ` }],
      ["a version it has", { ...valid, "if-none-match": '"1"' }],
      ["a version it has, weakly", { ...valid, "if-none-match": 'W/"1", "7"' }],
      ["any version", { ...valid, "if-none-match": "*" }],
      ["a version it has not", { ...valid, "if-none-match": '"2"' }],
      ["a malformed version", { ...valid, "if-none-match": "1" }],
      ["the version it wants", { ...valid, "if-match": '"1"' }],
      ["a version it wants that has changed", { ...valid, "if-match": '"2"' }],
      ["a version it wants, weakly", { ...valid, "if-match": 'W/"1"' }],
      ["a version it wants and has", { ...valid, "if-match": "*", "if-none-match": '"1"' }],
      ["a malformed version it wants", { ...valid, "if-match": "1" }],
      ["a page that may ask", { ...valid, origin: ORIGIN }],
      ["a page that may not ask", { ...valid, origin: "https://other.example.com" }],
      ["a page of a stranger", { origin: ORIGIN }],
      ["a host that is none", { ...valid, host: "a b" }],
      ["a host with a query", { ...valid, host: "a b?c" }],
      ["two hosts", { ...valid, host: "a\r\nhost: b" }],
      ["two hosts and no token", { host: "a\r\nhost: b" }],
    ];

    for (const [what, headers] of requests) {
      test(`\`GET\` returns the same through Elysia and the fast path when it has ${what}`, async () => {
        for (const path of paths) {
          const past = await ask(server, path, headers);
          expect(past.answer).toStartWith("HTTP/1.1 ");
          expect([path, past]).toEqual([path, await ask(server, `${path}?`, headers)]);
        }
      });
    }

    test("`HEAD` has the headers of `GET` and no body", async () => {
      const split = ({ answer }: { answer: string }) => {
        const [head = "", body] = answer.split("\r\n\r\n");
        return { head: head.toLowerCase().split("\r\n").sort(), body };
      };
      const asked = split(await ask(server, `users/${user.id}`, valid, "HEAD"));
      const read = split(await ask(server, `users/${user.id}`, valid));
      expect(asked.head).toEqual(read.head);
      expect(asked.body).toBe("");
    });
  });
}

test("`RATE_LIMIT` counts a GET of one record once, whether the record exists or not", async () => {
  await using limited = await startServer({ RATE_LIMIT: "20" });
  // None is left behind by the request that made it: the bucket is full again.
  const { id } = await newUser(limited);
  await Bun.sleep(100);
  for (const path of [`/users/${id}`, "/users/999"]) {
    const answers = await Promise.all(Array.from({ length: 40 }, () => limited.call("GET", path)));
    const refused = answers.filter(({ status }) => status === 429).length;
    expect(refused).toBeWithin(10, 21);
    await Bun.sleep(1_100);
  }
});
