// Clients that were generated from the document compile, and read an order whose total exceeds 32 bits, also if a later
// version of the server has added a field and a currency. C# is only generated.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { openapiJson } from "../../../src/http/app.ts";
import { newUser } from "../../http/make.ts";
import { startServer, type TestServer } from "../../http/server.ts";
import { enabled, made, run } from "../made.ts";
import { documentAsIn30 } from "./document30.ts";

const TIMEOUT_MS = 120_000;
const TOTAL = 2_500_000_000;
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
if (enabled) {
  const missing = Object.keys(needs).filter((name) => !needs[name]);
  if (missing.length > 0)
    console.warn(`Not tested, since tools are missing: ${missing.join(", ")}`);
}
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
        const response = await fetch(`${server.url}${new URL(url).pathname}`, { headers });
        const { data, ...rest } = (await response.json()) as { data: object };
        const added = { text: "new", items: [{ of: 1 }] };
        return Response.json({ data: { ...data, currency: "XYZ", added }, added, ...rest });
      },
    });
    await Bun.write(made("document.json"), openapiJson("1.0.0"));
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

/** @returns the path of the client */
async function generate(generator: string, options: readonly string[] = []): Promise<string> {
  const output = made(generator);
  const jar = "node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar";
  const input = ["-i", made("document30.json"), "-g", generator, "-o", output];
  const { code, text } = await run(["java", "-jar", jar, "generate", ...input, ...options]);
  expect([code, text.match(/^.*(?:ERROR|Exception in).*$/gm)]).toEqual([0, null]);
  return output;
}

/** Compiles a program in TypeScript under strict, and runs it. */
async function expectProgramReadsOrder(name: string, program: string): Promise<void> {
  await Bun.write(made(`${name}.ts`), program);
  const options = { extends: "../../../tsconfig.json", include: [`${name}.ts`], exclude: [] };
  // Generated code, of which only the program is ours.
  const lib = ["ESNext", "DOM", "DOM.Iterable"];
  const compilerOptions = { lib, skipLibCheck: true, exactOptionalPropertyTypes: false };
  const config = { ...options, compilerOptions };
  await Bun.write(made(`tsconfig.${name}.json`), JSON.stringify(config));
  const compiler = ["node_modules/.bin/tsc", "--noEmit", "--project"];
  expect(await run([...compiler, made(`tsconfig.${name}.json`)])).toEqual({ code: 0, text: "" });
  await expectReadsOrder([process.execPath, made(`${name}.ts`)]);
}

const begin = `
const [, , baseUrl = "", id = ""] = process.argv;
const headers = { authorization: \`Bearer \${process.env["TOKEN"]}\` };
`;
const print = `
if (order === undefined) throw new Error("there is no order");
console.log(order.total, order.status, Date.parse(order.created_at));
`;

test.skipIf(!enabled)(
  "a client of hey-api with zod reads an order when its total exceeds 32 bits",
  async () => {
    const { createClient } = await import("@hey-api/openapi-ts");
    await createClient({
      input: made("document.json"),
      output: made("hey-api"),
      logs: { level: "silent" },
      plugins: ["@hey-api/client-fetch", "zod", { name: "@hey-api/sdk", validator: "zod" }],
    });
    await expectProgramReadsOrder(
      "with-hey-api",
      `import { getOrder } from "./hey-api/index.ts";
import { client } from "./hey-api/client.gen.ts";
${begin}
client.setConfig({ baseUrl, headers });
const { data } = await getOrder({ path: { id: Number(id) }, throwOnError: true });
const order = data.data;
${print}`,
    );
  },
  TIMEOUT_MS,
);

test.skipIf(!enabled)(
  "a client of orval with zod reads an order when its total exceeds 32 bits",
  async () => {
    const { generate: generateWithOrval } = await import("orval");
    const input = { target: made("document.json") };
    await generateWithOrval({ input, output: { target: made("orval/api.ts"), client: "fetch" } });
    await generateWithOrval({ input, output: { target: made("orval/zod.ts"), client: "zod" } });
    await expectProgramReadsOrder(
      "with-orval",
      `import { getGetOrderUrl, type getOrderResponse200 } from "./orval/api.ts";
import { GetOrderResponse } from "./orval/zod.ts";
${begin}
const response = await fetch(baseUrl + getGetOrderUrl(Number(id)), { headers });
const body = (await response.json()) as getOrderResponse200["data"];
GetOrderResponse.parse(body);
const order = body.data;
${print}`,
    );
  },
  TIMEOUT_MS,
);

test.skipIf(isSkipped("Java"))(
  "a client of OpenAPI Generator for Java reads an order when its total exceeds 32 bits",
  async () => {
    const output = await generate("java", ["--library", "native"]);
    const jars = ["core", "databind", "annotations"].map((name) => `${JARS}/jackson-${name}.jar`);
    const classes = made("java-classes");
    const sources = [`${output}/src/main`, `${import.meta.dir}/java`].flatMap((directory) =>
      [...new Bun.Glob("**/*.java").scanSync(directory)].map((path) => `${directory}/${path}`),
    );
    const options = ["-nowarn", "-proc:none", "-cp", jars.join(":"), "-d", classes];
    const compiled = await run(["javac", ...options, ...sources]);
    expect(compiled.code, compiled.text).toBe(0);
    await expectReadsOrder(["java", "-cp", [classes, ...jars].join(":"), "ReadOrder"]);
  },
  TIMEOUT_MS,
);

test.skipIf(isSkipped("Go"))(
  "a client of OpenAPI Generator for Go reads an order when its total exceeds 32 bits",
  async () => {
    await generate("go-experimental");
    const path = made("go-path");
    await run(["rm", "-rf", path]);
    await run(["mkdir", "-p", `${path}/src`]);
    await run(["cp", "-r", made("go-experimental"), `${path}/src/openapi`]);
    const environment = {
      GO111MODULE: "off",
      GOCACHE: made("go-cache"),
      GOPATH: `${path}:/usr/share/gocode`,
    };
    const program = made("read-order-in-go");
    const built = await run(["go", "build", "-o", program, "./generators/go/main.go"], environment);
    expect(built).toEqual({ code: 0, text: "" });
    await expectReadsOrder([program]);
  },
  TIMEOUT_MS,
);

test.skipIf(isSkipped("Python"))(
  "a client of OpenAPI Generator for Python reads an order when its total exceeds 32 bits",
  async () => {
    const pythonpath = await generate("python");
    await expectReadsOrder(["/usr/bin/python3", "generators/python/read_order.py"], {
      PYTHONPATH: pythonpath,
    });
  },
  TIMEOUT_MS,
);

test.skipIf(isSkipped("java"))(
  "OpenAPI Generator gives a total 64 bits when it generates a client for C#",
  async () => {
    const output = await generate("csharp-netcore");
    const model = await Bun.file(`${output}/src/Org.OpenAPITools/Model/Order.cs`).text();
    expect(model).toMatch(/public long Total /);
  },
  TIMEOUT_MS,
);
