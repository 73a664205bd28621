import { afterAll, describe, expect, test } from "bun:test";
import { readConfig } from "../../src/config.ts";
import { createApp } from "../../src/http/app.ts";
import { createDrain } from "../../src/http/drain.ts";
import { createMetrics } from "../../src/http/metrics.ts";
import { listen } from "../../src/http/server.ts";
import { createLog } from "../../src/log.ts";
import { backendOf } from "../../src/main.ts";
import { newOrder, newUser } from "./make.ts";
import { logs, sendBytes, startServer, type TestServer } from "./server.ts";

const ORIGIN = "https://app.example.com";

/** A server, and its log so far. */
interface Logged {
  readonly url: string;
  lines(): Promise<Record<string, unknown>[]>;
}

/** @returns the bytes of the response to each request and its log line, without times and request id */
async function askAll(
  { url, lines }: Logged,
  paths: readonly string[],
  headers: Record<string, string>,
  method = "GET",
  body = "",
) {
  const responses = new Map<string, [path: string, response: string]>();
  for (const path of paths) {
    const id = `r-${crypto.randomUUID()}`;
    const fields = { host: "127.0.0.1", connection: "close", ...headers, "x-request-id": id };
    const head = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
    const request = `${method} /api/v1/${path} HTTP/1.1\r\n${head.join("")}\r\n${body}`;
    // The server closes the connection after the response.
    const response = await sendBytes(url, request, 10_000);
    expect(response).toStartWith("HTTP/1.1 ");
    responses.set(id, [path, response.replaceAll(id, "id").replace(/^date: .*\r\n/im, "")]);
  }
  const by_id = new Map((await lines()).map((line) => [line["request_id"], line]));
  return [...responses].map(([id, [path, response]]) => {
    expect(by_id.has(id)).toBe(true);
    const log = { ...by_id.get(id), time: null, duration_ms: null, request_id: null };
    return { path, response, log };
  });
}

/** @returns the same text without what differs between two new records */
function withoutIds(text: string): string {
  return text
    .replace(/"id":\d+/, '"id":0')
    .replace(/^(location: .*\/)\d+/im, "$1id")
    .replace(/^content-length: \d+\r\n/im, "")
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "time");
}

const logged = (server: TestServer): Logged => ({ url: server.url, lines: () => logs(server) });

/** Starts a server in this process that handles every request with Elysia, on the database of another one. */
async function startElysia(database_url: string, settings: Record<string, string>) {
  const written: string[] = [];
  const now = () => new Date();
  const log = createLog({
    level: "info",
    format: "json",
    now,
    write: (line) => written.push(line),
  });
  const config = readConfig({ PORT: "0", ...settings }, {});
  const store = await backendOf(database_url).open({
    ...config,
    database_url,
    exclusive: false,
    create: false,
    now,
  });
  const app = createApp({
    store,
    config,
    log,
    now,
    metrics: createMetrics("1.2.3"),
    drain: createDrain(),
    version: "0",
  });
  app.config.serve = { ...app.config.serve, routes: {} };
  const listener = await listen(app, config, log);
  return {
    url: listener.url,
    lines: async () => written.map((line) => JSON.parse(line)),
    async stop() {
      await listener.stop(0);
      await store.close();
    },
  };
}

// Without CORS, a response is created in fewer steps.
for (const [where, settings] of [
  ["", {}],
  [" with CORS", { CORS_ORIGIN: ORIGIN }],
] as const) {
  describe(`native routes${where}`, async () => {
    const server = await startServer(settings);
    const user = await newUser(server, { name: "Ann", metadata: { plan: "basic" } });
    const order = await newOrder(server, user.id);
    const elysia = await startElysia(server.database, settings);
    afterAll(async () => {
      await elysia.stop();
      await server[Symbol.asyncDispose]();
    });
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
      `orders/%2B${order.id}`,
      `users/%3${user.id}`,
      "users/%2F",
      "users/%",
      "orders/-1",
      "users/0",
      "users/abc",
      "orders/abc",
      `users/${user.id}/`,
      `orders/${order.id}?`,
      `users/${user.id}?a=1`,
      `orders/${order.id}?a=1&a=2`,
      "users/abc?a=1",
    ];

    const requests: [what: string, headers: Record<string, string>][] = [
      ["a token", valid],
      ["a read-only token", { authorization: `Bearer ${server.read_token}` }],
      ["no token", {}],
      ["a wrong token", { authorization: `Bearer ${"x".repeat(40)}` }],
      ["two tokens", { authorization: `Bearer ${server.write_token}, Bearer x` }],
      ["another scheme", { authorization: `Basic ${server.write_token}` }],
      ["a scheme in mixed case", { authorization: `bEARER   ${server.write_token}  ` }],
      ["If-None-Match with the version", { ...valid, "if-none-match": '"1"' }],
      ["If-None-Match with a weak tag", { ...valid, "if-none-match": 'W/"1", "7"' }],
      ["If-None-Match: *", { ...valid, "if-none-match": "*" }],
      ["If-None-Match with another version", { ...valid, "if-none-match": '"2"' }],
      ["a malformed If-None-Match", { ...valid, "if-none-match": "1" }],
      ["If-Match with the version", { ...valid, "if-match": '"1"' }],
      ["If-Match with another version", { ...valid, "if-match": '"2"' }],
      ["If-Match with a weak tag", { ...valid, "if-match": 'W/"1"' }],
      ["If-Match and If-None-Match", { ...valid, "if-match": "*", "if-none-match": '"1"' }],
      ["a malformed If-Match", { ...valid, "if-match": "1" }],
      ["an allowed origin", { ...valid, origin: ORIGIN }],
      ["another origin", { ...valid, origin: "https://other.example.com" }],
      ["an allowed origin and no token", { origin: ORIGIN }],
      ["an invalid host", { ...valid, host: "a b" }],
      ["a host with a query", { ...valid, host: "a b?c" }],
      ["two hosts", { ...valid, host: "a\r\nhost: b" }],
      ["two hosts and no token", { host: "a\r\nhost: b" }],
    ];

    for (const [what, headers] of requests) {
      test(`a native route responds as Elysia does when the request has ${what}`, async () => {
        const native = await askAll(logged(server), paths, headers);
        expect(native).toEqual(await askAll(elysia, paths, headers));
      });
    }

    for (const method of ["HEAD", "OPTIONS", "PUT"]) {
      test(`a native route responds as Elysia does when the method is ${method}`, async () => {
        const native = await askAll(logged(server), paths, valid, method);
        expect(native).toEqual(await askAll(elysia, paths, valid, method));
      });
    }

    const item = { sku: "tea-01", quantity: 1, unit_price: 100 };
    const order_input = { user_id: user.id, currency: "EUR", items: [item] };
    const read_only = { authorization: `Bearer ${server.read_token}` };
    const chunked = { "transfer-encoding": "chunked" };
    const posts: [
      what: string,
      list: "users" | "orders",
      status: number,
      body: unknown,
      headers?: Record<string, string>,
    ][] = [
      ["a valid order", "orders", 201, order_input],
      ["a valid order from an allowed origin", "orders", 201, order_input, { origin: ORIGIN }],
      ["a valid order from another origin", "orders", 201, order_input, { origin: "https://a.b" }],
      ["a valid order in chunks", "orders", 201, order_input, chunked],
      ["an order of no user", "orders", 400, { ...order_input, user_id: 999_999_999 }],
      ["a taken email", "users", 409, { email: user.email }],
      ["an empty object", "users", 400, {}],
      ["an empty object from an allowed origin", "users", 400, {}, { origin: ORIGIN }],
      ["a read-only field", "users", 400, { email: "a@example.com", id: 1 }],
      ["malformed JSON", "users", 400, '{"email":'],
      ["no body", "users", 400, ""],
      ["a duplicate member", "users", 400, '{"email":"a@example.com","email":"b@example.com"}'],
      ["another media type", "users", 415, {}, { "content-type": "text/plain" }],
      ["another charset", "users", 415, {}, { "content-type": "application/json; charset=latin1" }],
      ["a compressed body", "users", 415, {}, { "content-encoding": "gzip" }],
      ["too many bytes", "users", 413, { email: "a".repeat(2_000_000) }],
      ["too many bytes in chunks", "users", 413, { email: "a".repeat(2_000_000) }, chunked],
      ["a malformed key", "users", 400, {}, { "idempotency-key": "a b" }],
      ["a read-only token", "users", 403, {}, read_only],
      ["a wrong token", "users", 401, {}, { authorization: `Bearer ${"x".repeat(40)}` }],
      ["an empty Authorization and malformed JSON", "users", 401, "{", { authorization: "" }],
      ["an invalid host", "users", 400, {}, { host: "a b" }],
      ["a read-only token and an invalid host", "users", 400, {}, { ...read_only, host: "a b" }],
    ];
    const post_paths = [
      "users",
      "orders",
      "users?a=1",
      "orders?a=1",
      "users?",
      "users/",
      "orders/",
    ];

    for (const [what, list, status, body, headers] of posts) {
      test(`a native route responds to a POST as Elysia does when it has ${what}`, async () => {
        const text = typeof body === "string" ? body : JSON.stringify(body);
        const fields = { "content-type": "application/json", ...valid, ...headers };
        const [length, sent] =
          headers === chunked
            ? [{}, `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`]
            : [{ "content-length": `${text.length}` }, text];
        const post = async (where: Logged) => {
          const results = await askAll(where, post_paths, { ...fields, ...length }, "POST", sent);
          return results.map((result) => ({ ...result, response: withoutIds(result.response) }));
        };
        const native = await post(logged(server));
        expect(native).toEqual(await post(elysia));
        const result = native.find(({ path }) => path === list);
        expect(result?.response).toStartWith(`HTTP/1.1 ${status} `);
      });
    }

    for (const method of ["HEAD", "OPTIONS", "PUT"]) {
      test(`Elysia handles a request for a list when the method is ${method}`, async () => {
        const native = await askAll(logged(server), post_paths, valid, method);
        expect(native).toEqual(await askAll(elysia, post_paths, valid, method));
      });
    }

    test("Elysia handles a preflight of a POST", async () => {
      const headers = { origin: ORIGIN, "access-control-request-method": "POST" };
      const native = await askAll(logged(server), post_paths, headers, "OPTIONS");
      expect(native).toEqual(await askAll(elysia, post_paths, headers, "OPTIONS"));
    });

    test("a native route creates users and replays keys as Elysia does", async () => {
      const create = async (where: Logged, email: string, key: string) => {
        const text = JSON.stringify({ email, metadata: { plan: "basic" } });
        const sent = {
          ...valid,
          "content-type": "application/json",
          "content-length": `${text.length}`,
          "idempotency-key": key,
        };
        const [result] = await askAll(where, ["users"], sent, "POST", text);
        return withoutIds(result!.response).replace(email, "email");
      };
      const key = crypto.randomUUID();
      const [email, other_email] = [`${key}@a.example.com`, `${key}@b.example.com`];
      const created = await create(logged(server), email, key);
      expect(created).toStartWith("HTTP/1.1 201 ");
      expect(await create(elysia, other_email, `${key}-2`)).toBe(created);
      const replayed = await create(elysia, email, key);
      expect(replayed).toMatch(/^idempotent-replayed: true\r$/im);
      expect(await create(logged(server), email, key)).toBe(replayed);
      const reused = await create(elysia, other_email, key);
      expect(reused).toStartWith("HTTP/1.1 422 ");
      expect(await create(logged(server), other_email, key)).toBe(reused);
    });

    test("`HEAD` has the headers of `GET` and no body", async () => {
      const split = async (method: string) => {
        const [result] = await askAll(logged(server), paths.slice(0, 1), valid, method);
        const [head = "", body] = result!.response.split("\r\n\r\n");
        return { head: head.toLowerCase().split("\r\n").sort(), body };
      };
      const [head, get] = [await split("HEAD"), await split("GET")];
      expect(head.head).toEqual(get.head);
      expect([head.body, get.body === ""]).toEqual(["", false]);
    });
  });
}

for (const [what, method, path] of [
  ["a GET of a user", "GET", "/users/1"],
  ["a GET of an unknown user", "GET", "/users/999"],
  ["a POST that creates a user", "POST", "/users"],
  ["a POST without a body", "POST", "/orders"],
] as const) {
  test(`\`RATE_LIMIT\` counts ${what} once`, async () => {
    const rate = 10;
    await using limited = await startServer({ RATE_LIMIT: `${rate}` });
    // One request of the write token.
    await newUser(limited);
    const token = method === "GET" ? limited.read_token : limited.write_token;
    const calls = Array.from({ length: 4 * rate }, (_, at) => {
      const body = path === "/users" ? { email: `user${at}@example.com` } : undefined;
      return limited.call(method, path, { token, ...(body && { body }) });
    });
    const statuses = (await Promise.all(calls)).map(({ status }) => status);
    if (path === "/users") expect(statuses).toContain(201);
    const rejected = statuses.filter((status) => status === 429).length;
    expect(rejected).toBeWithin(1, 3 * rate + 2);
  });
}
