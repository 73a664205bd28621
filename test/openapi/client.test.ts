// Compiles and runs the typed client of docs/clients.md.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { startServer, type TestServer } from "../http/server.ts";
import { enabled, made, run, runTool } from "./made.ts";

let server: TestServer;
if (enabled) {
  beforeAll(async () => {
    server = await startServer();
  });
  afterAll(() => server[Symbol.asyncDispose]());
}

/** The address in the examples of the documentation. */
const ADDRESS = "http://127.0.0.1:3000";
const TIMEOUT_MS = 60_000;

const page = await Bun.file(`${import.meta.dir}/../../docs/clients.md`).text();
const [, lines = ""] = /^```ts\n(.*?)^```$/ms.exec(page) ?? [];

test.skipIf(!enabled)(
  "client of docs/clients.md compiles under strict and works; misuse does not compile",
  async () => {
    await Bun.write(made("client.ts"), lines.replaceAll(ADDRESS, server.url));
    const source = `${server.url}/api/v1/openapi.json`;
    await runTool("openapi-typescript", source, "--output", made("user-api.d.ts"));
    // `@ts-expect-error` is itself an error if the line below compiles.
    await Bun.write(
      made("misuse.ts"),
      `import createClient from "openapi-fetch";
import type { paths } from "./user-api";
const api = createClient<paths>({ baseUrl: "/" });
// @ts-expect-error: the email is required
void api.POST("/api/v1/users", { body: { name: "Ann" } });
// @ts-expect-error: unknown currency
void api.POST("/api/v1/orders", { body: { user_id: 1, currency: "EURO", items: [] } });
// @ts-expect-error: unknown method
void api.DELETE("/api/v1/orders/{id}", { params: { path: { id: 1 } } });
// @ts-expect-error: unknown parameter
void api.GET("/api/v1/users", { params: { query: { page: 2 } } });
const user = await api.GET("/api/v1/users/{id}", { params: { path: { id: 1 } } });
// @ts-expect-error: the request may have failed
user.data.data.email;
`,
    );
    const compiled = await run([
      "../../node_modules/.bin/tsc",
      "--project",
      "tsconfig.client.json",
    ]);
    expect(compiled).toEqual({ code: 0, text: "" });
    const ran = await run([process.execPath, made("client.ts")], { TOKEN: server.writeToken });
    expect(ran.text).toStartWith('3998 </api/v1/orders?limit=20&offset=0&user_id=1>; rel="first"');
    expect(ran.code).toBe(0);
    const { data } = (await server.call("GET", "/users")).json;
    expect(data).toMatchObject([{ email: "eve@example.com", name: "Eve" }]);
  },
  TIMEOUT_MS,
);
