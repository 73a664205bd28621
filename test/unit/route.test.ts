import { expect, test } from "bun:test";
import { allRoutes, createDocumentReader } from "../../src/http/app.ts";
import { isPublic, type RouteEntry, routesOf } from "../../src/http/routes/route.ts";

const routes: readonly RouteEntry[] = allRoutes().routes;

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

test("a route fails when Elysia handles it without the checks of the pipeline", async () => {
  const app = allRoutes();
  for (const { method, path } of routes) {
    const url = `http://localhost${path.replace(":id", "1")}`;
    const body = method === "GET" || method === "DELETE" ? null : "{}";
    const headers = { "content-type": "application/json" };
    const response = await app.handle(new Request(url, { method, headers, body }));
    expect(response.ok, `${method} ${path}`).toBe(false);
  }
});

test("reads name their client to the store", async () => {
  const clients: unknown[] = [];
  const read = (_query: unknown, client: unknown) => {
    clients.push(client);
    throw new Error("read");
  };
  const reads = { list: read, get: read };
  const store = { users: reads, orders: reads };
  const entries = routesOf(allRoutes()).filter(
    ({ method, path }) => method === "GET" && /\/(users|orders)\b/.test(path),
  );
  expect(entries).toHaveLength(4);
  for (const { hooks } of entries) {
    const request = new Request("http://localhost");
    const call = { request, params: { id: 1 }, query: {}, token: { hash: "a" }, store };
    expect(() => hooks.handler(call as never)).toThrow("read");
  }
  expect(clients).toEqual(["a", "a", "a", "a"]);
});

test("responses with an asset share one Blob for each coding", async () => {
  const assets = routesOf(allRoutes()).filter(({ path }) => path.startsWith("/api/v1/docs"));
  expect(assets).toHaveLength(5);
  for (const { path, hooks } of assets) {
    for (const coding of ["identity", "br"]) {
      const bodies = [1, 2].map(() => {
        const request = new Request(`http://localhost${path}`, {
          headers: { "accept-encoding": coding },
        });
        return hooks.handler({ request, head: { status: 200, headers: {} } } as never);
      });
      const [first, second] = await Promise.all(bodies);
      expect(first, `${path} ${coding}`).toBeInstanceOf(Blob);
      expect(second).toBe(first);
    }
  }
});

test("responses with the OpenAPI document share one Blob", async () => {
  const entries = routesOf(allRoutes());
  const { hooks } = entries.find(({ path }) => path.endsWith("/openapi.json")) ?? {};
  const document = createDocumentReader("0.0.0", entries);
  const head = { status: 200, headers: {} };
  const [first, second] = [1, 2].map(() => hooks?.handler({ document, head } as never));
  expect(first).toBeInstanceOf(Blob);
  expect(second).toBe(first);
});
