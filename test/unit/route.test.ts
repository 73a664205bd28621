import { expect, spyOn, test } from "bun:test";
import { Elysia } from "elysia";
import { createReplaceableStore } from "../../src/domain/replaceable-store.ts";
import { allRoutes, createApp, createDocumentReader } from "../../src/http/app.ts";
import { createDrain } from "../../src/http/limits/drain.ts";
import { isPublic, type Route, routesOf } from "../../src/http/routes/route.ts";

const routes = routesOf(allRoutes());

test("only the listed routes are public", () => {
  const paths = routes.filter(isPublic).map(({ method, path }) => `${method} ${path}`);
  expect(paths.sort()).toEqual([
    "GET /api/v1/docs",
    "GET /api/v1/docs/page.css",
    "GET /api/v1/docs/page.js",
    "GET /api/v1/docs/swagger-ui.css",
    "GET /api/v1/docs/swagger-ui.js",
    "GET /api/v1/health",
    "GET /api/v1/openapi.json",
  ]);
});

test("a route fails when its app has no pipeline, whose checks it needs", async () => {
  const app = allRoutes();
  for (const { method, path } of routes) {
    const url = `http://localhost${path.replace(":id", "1")}`;
    const body = method === "GET" || method === "DELETE" ? null : "{}";
    const headers = { "content-type": "application/json" };
    const response = await app.handle(new Request(url, { method, headers, body }));
    expect(response.ok, `${method} ${path}`).toBe(false);
  }
});

/** All routes, without checks. @returns a function that returns the bodies of two GETs */
function createHandlers(services: object) {
  const bodies: unknown[] = [];
  const app = new Elysia()
    .decorate("pipeline", async ({ handler }: Route, _path: string, request: Request) => {
      const head = { status: 200, headers: {} };
      const call = { request, head, params: { id: 1 }, query: {}, token: { hash: "a" } };
      bodies.push(await handler(call as never, services as never));
      return new Response();
    })
    .use(allRoutes());
  return async (path: string) => {
    const get = () => app.handle(new Request(`http://localhost${path}`));
    await Promise.allSettled([get(), get()]);
    return bodies.splice(0);
  };
}

// Bun suspends a request whose response is a promise.
test("a route returns its response in the same turn when the pipeline does", () => {
  const app = new Elysia().decorate("pipeline", () => new Response()).use(allRoutes());
  for (const path of ["/api/v1/users", "/api/v1/orders/1", "/api/v1/changes"])
    expect(app.fetch(new Request(`http://localhost${path}`)), path).toBeInstanceOf(Response);
});

test("reads name their client to the store", async () => {
  const clients: unknown[] = [];
  const read = (_query: unknown, client: unknown) => {
    clients.push(client);
    throw new Error("read");
  };
  const reads = { list: read, get: read };
  const store = { users: reads, orders: reads };
  const paths = routes.filter(
    ({ method, path }) => method === "GET" && /\/(users|orders)\b/.test(path),
  );
  expect(paths).toHaveLength(4);
  const getTwice = createHandlers({ store });
  for (const { path } of paths) expect(await getTwice(path)).toEqual([]);
  expect(clients).toEqual(Array(8).fill("a"));
});

test("responses with an asset or the OpenAPI document share one Blob", async () => {
  const paths = routes.map(({ path }) => path).filter((path) => path.startsWith("/api/v1/docs"));
  expect(paths).toHaveLength(5);
  const getTwice = createHandlers({ document: createDocumentReader("0.0.0", routes) });
  for (const path of [...paths, "/api/v1/openapi.json"]) {
    const [first, second] = await getTwice(path);
    expect(first, path).toBeInstanceOf(Blob);
    expect(second).toBe(first);
  }
});

/** An app without a store. */
function makeApp(log: object) {
  const metrics = { addRoute() {}, observeRequest() {} };
  const config = { corsOrigin: null, rateLimit: 0, apiToken: null };
  const rest = { stores: createReplaceableStore(), servers: new Set(), drain: createDrain() };
  return createApp({ ...rest, metrics, config, log } as never);
}

test("the response is only internal error when no response can be made", async () => {
  const lines: unknown[] = [];
  const request = () => {
    throw new Error("hunter2");
  };
  const error = (event: string, { reason }: { reason: string }) => lines.push([event, reason]);
  const app = makeApp({ enabled: () => true, request, error });
  const response = await app.handle(new Request("http://localhost/api/v1/users"));
  expect([response.status, await response.text()]).toEqual([500, "internal error"]);
  expect(lines).toEqual([["internal error", "hunter2"]]);
});

// Bun would serve no other connection until it has handled all that one has pipelined, and keep bodies until their turn.
test("a rejected request waits when its turn is over, unless it has a body of more than 1 KiB", async () => {
  let timeMs = 0;
  using _clock = spyOn(performance, "now").mockImplementation(() => {
    timeMs += 1.5;
    return timeMs;
  });
  const app = makeApp({ enabled: () => false });
  const answered: number[] = [];
  const send = async (bytes: number) => {
    const headers = { "content-length": `${bytes}` };
    const request = new Request("http://localhost/api/v1/users", { method: "POST", headers });
    expect((await app.handle(request)).status).toBe(401);
    answered.push(bytes);
  };
  await Promise.all([0, 1024, 1025].map(send));
  expect(answered).toEqual([0, 1025, 1024]);
});
