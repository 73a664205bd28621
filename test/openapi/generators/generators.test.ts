// Clients that were generated from the document compile, and read what they have created, also if a later version of the
// server has added a field and a currency.
import { afterAll, test } from "bun:test";
import { openapiJson } from "../../../src/http/app.ts";
import { startSharedServer } from "../../http/server.ts";
import { type Client, expectRecords } from "../exercise.ts";
import { enabled, expectCompiles, made, runTool } from "../made.ts";

const TIMEOUT_MS = 120_000;
const DOCUMENT = made("document.json");
const server = enabled ? await startSharedServer() : (null as never);

const later = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch({ url, headers }) {
    const { pathname, search } = new URL(url);
    const response = await fetch(server.url + pathname + search, { headers });
    const { data = {}, ...rest } = (await response.json()) as { data?: object };
    const added = { text: "new", items: [{ of: 1 }] };
    const currency = { currency: "XYZ" };
    const extend = (one: object) => ({ ...one, ...("items" in one && currency), added });
    const extended = Array.isArray(data) ? data.map(extend) : extend(data);
    return Response.json({ data: extended, added, ...rest });
  },
});
afterAll(() => later.stop(true));

if (enabled) await Bun.write(DOCUMENT, openapiJson("1.0.0"));

async function generateWithHeyApi(): Promise<void> {
  const { createClient } = await import("@hey-api/openapi-ts");
  await createClient({
    input: DOCUMENT,
    output: made("hey-api"),
    logs: { level: "silent" },
    plugins: ["@hey-api/client-fetch", "zod", { name: "@hey-api/sdk", validator: "zod" }],
  });
}

/** Validates only responses, with a version of zod that counts UTF-16 units. */
async function generateWithKubb(): Promise<void> {
  const { build } = await import("@kubb/core");
  const { pluginClient } = await import("@kubb/plugin-client");
  const { pluginOas } = await import("@kubb/plugin-oas");
  const { pluginTs } = await import("@kubb/plugin-ts");
  const { pluginZod } = await import("@kubb/plugin-zod");
  const reads = { type: "method", pattern: "get", options: { parser: "zod" } } as const;
  const zod = pluginZod({ version: "4", importPath: "zod-utf16" });
  const client = pluginClient({ client: "fetch", override: [reads] });
  const plugins = [pluginOas({ validate: false }), pluginTs(), zod, client];
  await build({ config: { input: { path: DOCUMENT }, output: { path: made("kubb") }, plugins } });
}

/** How to generate a client, statements of a program that prepare it, and the expression of a response's body. */
type Generator = [
  generate: () => Promise<void> | undefined,
  prepare: string,
  call: (operation: string, input: "body" | "query") => string,
];

const tagOf = (operation: string) => (operation.includes("User") ? "users" : "orders");

const generators: Readonly<Record<string, Generator>> = {
  "openapi-fetch": [
    () => runTool("openapi-typescript", DOCUMENT, "--output", made("paths.d.ts")),
    `const { default: createClient } = await import("openapi-fetch");
  const api = createClient<import("./paths").paths>({ baseUrl, headers });`,
    (operation, input) => {
      const [method, value] = input === "body" ? ["POST", input] : ["GET", "params: { query }"];
      return `(await api.${method}("/api/v1/${tagOf(operation)}", { ${value} })).data!`;
    },
  ],
  "Kubb with zod": [
    generateWithKubb,
    `const { setConfig } = await import("@kubb/plugin-client/clients/fetch");
  const api = await import("./kubb/index.ts");
  setConfig({ baseURL: baseUrl, headers: { ...headers, "content-type": "application/json" } });`,
    (operation, input) => `api.${operation}(${input})`,
  ],
  "hey-api with zod": [
    generateWithHeyApi,
    `const api = await import("./hey-api/index.ts");
  (await import("./hey-api/client.gen.ts")).client.setConfig({ baseUrl, headers });`,
    (operation, input) => `(await api.${operation}({ ${input}, throwOnError: true })).data`,
  ],
  "openapi-typescript-codegen": [
    () =>
      runTool(
        ...["openapi", "--name", "Api", "--useOptions", "--useUnionTypes"],
        ...["--input", DOCUMENT, "--output", made("codegen")],
      ),
    `const { Api } = await import("./codegen/index.ts");
  const api = new Api({ BASE: baseUrl, HEADERS: headers });`,
    (operation, input) =>
      `api.${tagOf(operation)}.${operation}(${input === "body" ? "{ requestBody: body }" : input})`,
  ],
  "openapi-client-axios": [
    () => undefined,
    `const { OpenAPIClientAxios } = await import("openapi-client-axios");
  const definition = baseUrl + "/api/v1/openapi.json";
  const options = { definition, axiosConfigDefaults: { baseURL: baseUrl, headers } };
  const api = await new OpenAPIClientAxios(options).init();`,
    (operation, input) =>
      `(await api["${operation}"]!(${input === "body" ? "{}, body" : "{ ...query }"})).data`,
  ],
};

/** Writes a program in TypeScript, and compiles it under strict. */
async function writeProgram([, prepare, call]: Generator): Promise<void> {
  const text = `import type { Client } from "../exercise.ts";
export async function connect(baseUrl: string, headers: Record<string, string>): Promise<Client> {
  ${prepare}
  return {
    createUser: async (body) => ${call("createUser", "body")},
    createOrder: async (body) => ${call("createOrder", "body")},
    listUsers: async (query) => ${call("listUsers", "query")},
    listOrders: async (query) => ${call("listOrders", "query")},
  };
}
`;
  await Bun.write(made("program.ts"), text);
  await expectCompiles("generators");
}

test.skipIf(!enabled).each(Object.entries(generators))(
  "a client of %s reads what it has created when texts are at their bounds in emoji",
  async (name, generator) => {
    await generator[0]();
    await writeProgram(generator);
    const { connect } = await import(`${made("program.ts")}?${name}`);
    const headers = { authorization: `Bearer ${server.writeToken}` };
    const connectTo = ({ origin }: URL): Promise<Client> => connect(origin, headers);
    const client = await connectTo(new URL(server.url));
    await expectRecords(client, () => connectTo(later.url));
  },
  TIMEOUT_MS,
);
