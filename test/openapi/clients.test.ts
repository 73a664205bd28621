// The types of the client of docs/clients.md, and `treaty<App>` of Eden. `make openapi-test` compiles this file:
// `@ts-expect-error` is itself an error if the line below compiles.
import { expect, test } from "bun:test";
import { type App, openapiJson } from "../../src/http/app.ts";
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
  same<Remove>()<Statuses<Calls["users"][":id"]["delete"]>>();
  same<List | 410>()<Statuses<Calls["changes"]["get"]>>();
  same<Metrics>()<Statuses<Calls["metrics"]["get"]>>();
  same<200 | 400 | 405 | 417 | 500 | 503>()<Statuses<Calls["health"]["get"]>>();
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
    await api.users.get({ query: { id: "1,2", reference: "K-1" } });
    await api.orders.get({
      query: { status: ["paid", "pending"], created_to: "2027-01-01T00:00:00Z" },
    });
    await api.orders({ id: 1 }).patch({ user_id: 2, refunded: 500, reference: null });
    // @ts-expect-error: unknown method
    await api.orders({ id: 1 }).delete();
    // @ts-expect-error: unknown path
    await api.customers.get();
    // @ts-expect-error: unknown parameter
    await api.users.get({ query: { page: 2 } });
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
const [, section = ""] = page.split("## Eden Treaty\n");
/** @returns the first block of this language */
const blockOf = (markdown: string, language: string) =>
  new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, "ms").exec(markdown)?.[1] ?? "";
/** The address in the examples of the documentation. */
const ADDRESS = "http://127.0.0.1:3000";
const TIMEOUT_MS = 60_000;

const misuse = `import { type ApiError, Client } from "./client.ts";
const api = new Client("", "");
const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];
// @ts-expect-error: the email is required
await api.createUser({ name: "Ann" });
// @ts-expect-error: unknown field
await api.createUser({ email: "a@example.com", phone: "1" });
// @ts-expect-error: unknown currency
await api.createOrder({ user_id: 1, currency: "EURO", items });
// @ts-expect-error: unknown status
await api.editOrder(1, () => ({ status: "lost" }));
// @ts-expect-error: read-only
await api.editOrder(1, ({ total }) => ({ total }));
// @ts-expect-error: unknown parameter
api.orders({ page: 2 });
// @ts-expect-error: unknown status
api.orders({ status: ["lost"] });
// @ts-expect-error: it may be null
for await (const { name } of api.users()) name.length;
// @ts-expect-error: the record is missing if it was deleted
for await (const { record } of api.changes("a-1")) record.id;
export const messages = (error: ApiError) => error.problems.map(({ problem }) => problem);
`;

test.skipIf(!enabled)(
  "client.ts and its programs compile under strict with the types of the document, which find misuse",
  async () => {
    const programs = { "program.ts": blockOf(page, "ts"), "misuse.ts": misuse };
    for (const file of ["client.ts", "follow.ts"])
      await Bun.write(made(file), Bun.file(`${import.meta.dir}/../../docs/examples/${file}`));
    for (const [file, text] of Object.entries(programs)) await Bun.write(made(file), text);
    const command = blockOf(page, "sh").replaceAll(ADDRESS, server.url);
    const [, name = "", ...options] = command.trim().split(" ");
    await runTool(name, ...options.map((option) => option.replace("user-api.d.ts", made("$&"))));
    await expectCompiles("tsconfig.client.json");
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
    for (const first of ["kim@example.com", "email_taken"]) {
      const ran = await run([process.execPath, made("treaty/client.ts")], {
        TOKEN: server.writeToken,
      });
      expect(ran).toEqual({ code: 0, text: `${first}\n` });
    }
  },
  TIMEOUT_MS,
);

// openapi-typescript has the rules of Redocly, and applies them before it generates types.
test.skipIf(!enabled).each<[linter: string, ...options: string[]]>([
  ["spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "hint"],
  ["openapi-typescript", "--output", made("linted.d.ts")],
])(
  "%s reports nothing, not even a hint, about the document",
  async (...[linter, ...options]) => {
    const file = made("linted.json");
    await Bun.write(file, openapiJson("1.2.3"));
    const { code, text } = await run([`node_modules/.bin/${linter}`, ...options, file]);
    expect([code, /[⚠✘✖]/.test(text)], text).toEqual([0, false]);
  },
  TIMEOUT_MS,
);
