// The typed clients of docs/clients.md, and `treaty<App>` of Eden. `make openapi-test` compiles this file:
// `@ts-expect-error` is itself an error if the line below compiles.
import { expect, test } from "bun:test";
import type { App } from "../../src/http/app.ts";
import { startSharedServer } from "../http/server.ts";
import { type Client, expectRecords } from "./exercise.ts";
import { enabled, expectCompiles, made, run, runTool } from "./made.ts";

const server = enabled ? await startSharedServer() : (null as never);

async function createApi(token: string) {
  // Only `make openapi-test` installs it.
  const { treaty } = await import("@elysiajs/eden");
  const headers = { authorization: `Bearer ${token}` };
  // The root, because `await` would treat any other part as a promise.
  return treaty<App>(server.url, { headers, parseDate: false });
}

type Api = Awaited<ReturnType<typeof createApi>>["api"]["v1"];
type Calls = App["~Routes"]["api"]["v1"];
type Statuses<Call extends { response: unknown }> = keyof Call["response"];

/** Fails to compile if a type is not exactly the expected one. */
function same<Expected>() {
  return <Actual>(
    ..._: [Actual] extends [Expected] ? ([Expected] extends [Actual] ? [] : [never]) : [never]
  ) => undefined;
}

test("App has exactly the statuses that each route can return", () => {
  type Get = 200 | 304 | 400 | 401 | 403 | 404 | 405 | 412 | 417 | 429 | 500 | 503;
  type Metrics = 200 | 400 | 401 | 405 | 417 | 429 | 500 | 503;
  type List = Metrics | 403;
  type Create = 201 | 400 | 401 | 403 | 405 | 409 | 413 | 415 | 417 | 422 | 429 | 500 | 503;
  type Remove = 200 | 400 | 401 | 403 | 404 | 405 | 409 | 412 | 417 | 422 | 429 | 500 | 503;
  same<List>()<Statuses<Calls["users"]["get"]>>();
  same<Create>()<Statuses<Calls["users"]["post"]>>();
  same<Get>()<Statuses<Calls["users"][":id"]["get"]>>();
  same<Remove | 413 | 415>()<Statuses<Calls["users"][":id"]["patch"]>>();
  same<Remove | 413 | 415>()<Statuses<Calls["users"][":id"]["put"]>>();
  same<Remove>()<Statuses<Calls["users"][":id"]["delete"]>>();
  same<List>()<Statuses<Calls["orders"]["get"]>>();
  same<Create>()<Statuses<Calls["orders"]["post"]>>();
  same<Get>()<Statuses<Calls["orders"][":id"]["get"]>>();
  same<Remove | 413 | 415>()<Statuses<Calls["orders"][":id"]["patch"]>>();
  same<List | 410>()<Statuses<Calls["changes"]["get"]>>();
  same<Metrics>()<Statuses<Calls["metrics"]["get"]>>();
  same<200 | 400 | 405 | 417 | 500 | 503>()<Statuses<Calls["health"]["get"]>>();
  same<200 | 400 | 405 | 417 | 500 | 503>()<Statuses<Calls["openapi.json"]["get"]>>();
  // @ts-expect-error: it is 201
  same<200 | 400>()<Statuses<Calls["users"]["post"]>>();
});

test("App rejects requests and responses that do not exist", () => {
  const compiled = async (api: Api) => {
    // @ts-expect-error: the email is required
    await api.users.post({ name: "Ann" });
    // @ts-expect-error: unknown status
    await api.orders({ id: 1 }).patch({ status: "lost" });
    // @ts-expect-error: a quantity is a number
    await api.orders.post({ user_id: 1, currency: "EUR", items: [{ sku: "a", quantity: "1" }] });
    // @ts-expect-error: read-only
    await api.orders.post({ user_id: 1, currency: "EUR", items: [], refunded: 1 });
    // @ts-expect-error: ids are numbers, or text
    await api.users.get({ query: { id: ["1", "2"] } });
    await api.users.get({ query: { id: "1,2", reference: "K-1" } });
    await api.orders.get({
      query: { status: ["paid", "pending"], created_to: "2027-01-01T00:00:00Z" },
    });
    // @ts-expect-error: unknown status
    await api.orders.get({ query: { status: ["lost"] } });
    await api.orders({ id: 1 }).patch({ user_id: 2, refunded: 500, reference: null });
    // @ts-expect-error: unknown method
    await api.orders({ id: 1 }).delete();
    // @ts-expect-error: unknown path
    await api.customers.get();
    // @ts-expect-error: unknown parameter
    await api.users.get({ query: { page: 2 } });
    // @ts-expect-error: it has no parameters
    await api.health.get({ query: { limit: 1 } });
    const { data, error } = await api.users({ id: 1 }).get();
    // @ts-expect-error: it may have failed
    data.data.email;
    // @ts-expect-error: GET of a user never conflicts
    error?.status === 409;
    if (error?.status !== 404) return;
    const code: "not_found" = error.value.meta.code;
    // @ts-expect-error: it has another code
    const taken: "email_taken" = error.value.meta.code;
    await Promise.all([code, taken]);
  };
  expect(compiled).toBeFunction();
});

const page = await Bun.file(`${import.meta.dir}/../../docs/clients.md`).text();
const [, section = ""] = page.split("### Eden Treaty\n");
/** @returns the first block of this language */
const blockOf = (markdown: string, language: string) =>
  new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, "ms").exec(markdown)?.[1] ?? "";
/** The address in the examples of the documentation. */
const ADDRESS = "http://127.0.0.1:3000";
const TIMEOUT_MS = 60_000;

test.skipIf(!enabled)(
  "client of docs/clients.md compiles under strict and works",
  async () => {
    await Bun.write(made("client.ts"), blockOf(page, "ts").replaceAll(ADDRESS, server.url));
    const source = `${server.url}/api/v1/openapi.json`;
    await runTool("openapi-typescript", source, "--output", made("user-api.d.ts"));
    await expectCompiles("tsconfig.client.json");
    const ran = await run([process.execPath, made("client.ts")], { TOKEN: server.writeToken });
    expect(ran.text).toStartWith('3998 </api/v1/orders?limit=20&offset=0&user_id=1>; rel="first"');
    expect(ran.code).toBe(0);
    const { data } = (await server.call("GET", "/users")).json;
    expect(data).toMatchObject([{ email: "eve@example.com", name: "Eve" }]);
  },
  TIMEOUT_MS,
);

test.skipIf(!enabled)("Eden Treaty lists records when emoji fill their texts", async () => {
  const api = (await createApi(server.writeToken)).api.v1;
  const client: Client = {
    createUser: async (body) => (await api.users.post(body)).data!,
    createOrder: async (body) => (await api.orders.post(body)).data!,
    listUsers: async (query) => (await api.users.get({ query })).data!,
    listOrders: async (query) => (await api.orders.get({ query })).data!,
  };
  await expectRecords(client);
});

test.skipIf(!enabled)(
  "the example of docs/clients.md with Eden Treaty compiles and works",
  async () => {
    const checkout = "../../../..";
    const here = (text: string) => text.replaceAll("../user-api", checkout);
    const lines = here(blockOf(section, "ts")).replaceAll(ADDRESS, server.url);
    await Bun.write(made("treaty/client.ts"), lines);
    const config = JSON.parse(here(blockOf(section, "json")));
    await Bun.write(
      made("treaty/tsconfig.json"),
      // The tsconfig.json of a checkout excludes this directory.
      JSON.stringify({ ...config, exclude: [] }),
    );
    await expectCompiles(made("treaty/tsconfig.json"));
    for (const first of ["kim@example\\.com", "email_taken"]) {
      const ran = await run([process.execPath, made("treaty/client.ts")], {
        TOKEN: server.writeToken,
      });
      const text = expect.stringMatching(new RegExp(`^${first}\n\\d+ orders\n$`));
      expect(ran).toEqual({ code: 0, text });
    }
  },
  TIMEOUT_MS,
);
