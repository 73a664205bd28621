// Clients that were generated from the document compile, and read orders whose totals exceed 32 bits, also if a later
// version of the server has added a field and a currency.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, existsSync, rmSync } from "node:fs";
import { openapiJson } from "../../../src/http/app.ts";
import { newUser } from "../../http/make.ts";
import { startServer, type TestServer } from "../../http/server.ts";
import { type Client, expectRecords } from "../exercise.ts";
import { enabled, expectCompiles, made, run, runTool } from "../made.ts";
import { documentAsIn30 } from "./document30.ts";

const TIMEOUT_MS = 120_000;
const TOTAL = 2_500_000_000;
const DOCUMENT = made("document.json");
/** Where Debian has jars. */
const JARS = "/usr/share/java";

const has = (program: string) => Bun.which(program) !== null;
/** What a generated client needs. The test of one that lacks something is skipped. */
const needs: Readonly<Record<string, boolean>> = {
  java: has("java"),
  Java: has("javac") && existsSync(`${JARS}/jackson-databind.jar`),
  Go: has("go") && existsSync("/usr/share/gocode/src/golang.org/x/oauth2"),
  Python: existsSync("/usr/lib/python3/dist-packages/certifi"),
};
const isSkipped = (language: string) => !enabled || !needs["java"] || !needs[language];

let server: TestServer;
let later: Bun.Server<undefined>;
let order: { readonly id: number; readonly created_at: string };
if (enabled) {
  beforeAll(async () => {
    server = await startServer();
    const { id } = await newUser(server);
    const items = [{ sku: "A-1", quantity: 1000, unit_price: TOTAL / 1000 }];
    const body = { user_id: id, currency: "EUR", items };
    order = (await server.call("POST", "/orders", { body })).json.data;
    later = Bun.serve({
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
    await Bun.write(DOCUMENT, openapiJson("1.0.0"));
    const document = documentAsIn30(JSON.parse(openapiJson("1.0.0")));
    await Bun.write(made("document30.json"), JSON.stringify(document));
  });
  afterAll(async () => {
    await later.stop(true);
    await server[Symbol.asyncDispose]();
  });
}

/** Runs a program with an address and the id of the order: of the server, and of a later version. */
async function expectReadsOrder(words: readonly string[], environment = {}): Promise<void> {
  const expected = `${TOTAL} pending ${Date.parse(order.created_at)}\n`;
  for (const url of [server.url, later.url.origin]) {
    const more = { TOKEN: server.writeToken, ...environment };
    const ran = await run([...words, url, `${order.id}`], more);
    expect(ran).toEqual({ code: 0, text: expected });
  }
}

async function generate(generator: string, options: readonly string[] = []): Promise<string> {
  const output = made(generator);
  const jar = "node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar";
  const input = ["-i", made("document30.json"), "-g", generator, "-o", output];
  const { code, text } = await run(["java", "-jar", jar, "generate", ...input, ...options]);
  expect([code, text.match(/^.*(?:ERROR|Exception in).*$/gm)]).toEqual([0, null]);
  return output;
}

async function generateWithHeyApi(): Promise<void> {
  const { createClient } = await import("@hey-api/openapi-ts");
  await createClient({
    input: DOCUMENT,
    output: made("hey-api"),
    logs: { level: "silent" },
    plugins: ["@hey-api/client-fetch", "zod", { name: "@hey-api/sdk", validator: "zod" }],
  });
}

async function generateWithOrval(): Promise<void> {
  for (const client of ["fetch", "zod"]) {
    const options = ["--output", made(`orval/${client}.ts`), "--client", client];
    await runTool("orval", "--input", DOCUMENT, ...options);
  }
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
  oazapfts: [
    () => runTool("oazapfts", DOCUMENT, made("oazapfts.ts")),
    `const { ok } = await import("@oazapfts/runtime");
  const api = await import("./oazapfts.ts");
  Object.assign(api.defaults, { baseUrl, headers });`,
    (operation, input) => `ok(api.${operation}(${input}))`,
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
  "orval with zod": [
    generateWithOrval,
    `const api = { ...(await import("./orval/fetch.ts")), ...(await import("./orval/zod.ts")) };
  const json = { ...headers, "content-type": "application/json" };
  const send = async (path: string, init?: RequestInit) =>
    (await fetch(baseUrl + path, { ...init, headers: json })).json();`,
    (operation, input) => {
      const name = operation.replace(/^./, (letter) => letter.toUpperCase());
      const post = `(), { method: "POST", body: JSON.stringify(body) }`;
      const request = `api.get${name}Url${input === "body" ? post : "(query)"}`;
      return `api.${name}Response.parse(await send(${request}))`;
    },
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

/** Each makes a client with OpenAPI Generator. @returns the words that run its program, and their environment */
const makers: Readonly<Record<string, () => Promise<[words: string[], environment?: object]>>> = {
  async Java() {
    const output = await generate("java", ["--library", "native"]);
    const jars = ["core", "databind", "annotations"].map((name) => `${JARS}/jackson-${name}.jar`);
    const classes = made("java-classes");
    const sources = [`${output}/src/main`, `${import.meta.dir}/java`].flatMap((directory) =>
      [...new Bun.Glob("**/*.java").scanSync(directory)].map((path) => `${directory}/${path}`),
    );
    const options = ["-nowarn", "-proc:none", "-cp", jars.join(":"), "-d", classes];
    const compiled = await run(["javac", ...options, ...sources]);
    expect(compiled.code, compiled.text).toBe(0);
    return [["java", "-cp", [classes, ...jars].join(":"), "ReadOrder"]];
  },
  async Go() {
    const output = await generate("go-experimental");
    const path = made("go-path");
    rmSync(path, { recursive: true, force: true });
    cpSync(output, `${path}/src/openapi`, { recursive: true });
    const environment = {
      GO111MODULE: "off",
      GOCACHE: made("go-cache"),
      GOPATH: `${path}:/usr/share/gocode`,
    };
    const program = made("read-order-in-go");
    const built = await run(["go", "build", "-o", program, "./generators/go/main.go"], environment);
    expect(built).toEqual({ code: 0, text: "" });
    return [[program]];
  },
  async Python() {
    const pythonpath = await generate("python");
    return [["/usr/bin/python3", "generators/python/read_order.py"], { PYTHONPATH: pythonpath }];
  },
};

for (const [language, make] of Object.entries(makers))
  test.skipIf(isSkipped(language))(
    `a client of OpenAPI Generator for ${language} reads an order when its total exceeds 32 bits`,
    async () => expectReadsOrder(...(await make())),
    TIMEOUT_MS,
  );
