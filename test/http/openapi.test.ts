import { expect, test } from "bun:test";
import { version } from "../../package.json" with { type: "json" };
import { problemCodes } from "../../src/base/error.ts";
import { allRoutes, openapiJson } from "../../src/http/app.ts";
import {
  document,
  exampleCodes,
  type Operation,
  openDocument,
  undocumented,
} from "./documented.ts";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();

test("GET /openapi.json returns the document with and without a token", async () => {
  for (const token of [null, server.readToken]) {
    const response = await server.call("GET", "/openapi.json", { token });
    expect([response.status, response.text]).toEqual([200, openapiJson(version)]);
  }
  expect(JSON.parse(openapiJson(version)).info.version).toBe(version);
});

/** The reference and its assets, which are not part of the API. */
const FILE_OF_PAGE = /^\/api\/v1\/(docs|browse)\b/;

test("the paths of the document are exactly the routes of the app", () => {
  const real = allRoutes()
    .routes.filter(({ path }) => !FILE_OF_PAGE.test(path))
    .map(({ method, path }) => `${method} ${path.replace(":id", "{id}")}`);
  const listed = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(listed.sort()).toEqual(real.sort());
});

/** Error codes by status. Clients depend on them: within v1, codes may be added, but not changed or removed. */
const ERROR_CODES: Readonly<Record<number, readonly string[]>> = {
  400: ["validation_failed"],
  403: ["insufficient_scope"],
  404: ["not_found"],
  405: ["method_not_allowed"],
  409: "email_taken invalid_refund invalid_status_change reference_taken user_has_orders".split(
    " ",
  ),
  410: ["changes_expired", "changes_reset"],
  412: ["version_mismatch"],
  413: ["payload_too_large"],
  415: ["unsupported_media_type"],
  417: ["expectation_failed"],
  422: ["idempotency_key_reused"],
  429: ["too_many_requests"],
  503: ["unavailable"],
};

const operations = Object.values(document.paths).flatMap(Object.values) as Operation[];

test("meta.code is one of the codes that clients know, in every operation of the document", () => {
  for (const [status, codes] of Object.entries(ERROR_CODES)) {
    const documented = operations.flatMap(({ responses }) =>
      exampleCodes(responses[status]?.content?.["application/json"]),
    );
    expect([status, [...new Set(documented)].sort()]).toEqual([status, [...codes]]);
  }
  const { Error: error, FieldError: fieldError } = JSON.parse(openapiJson(version)).components
    .schemas;
  const { properties, required } = error.properties.meta;
  expect([...properties.code.examples].sort()).toEqual(Object.values(ERROR_CODES).flat().sort());
  expect(required).toEqual(["code"]);
  expect(fieldError.properties.code.examples).toEqual([...problemCodes]);
});

test("docs/api.md lists the codes of the errors by status", async () => {
  const page = await Bun.file(`${import.meta.dir}/../../docs/api.md`).text();
  const rows = page.matchAll(/^\| (\d{3}) \| (`[^|]+) \|/gm);
  const listed = [...rows].map(([, status, codes = ""]) => [
    status,
    codes.replaceAll("`", "").split(", ").sort(),
  ]);
  expect(Object.fromEntries(listed)).toEqual(ERROR_CODES);
});

const bounds = /^(?:max|min)|^pattern$|^propertyNames$|^enum$/;

test("the document has closed requests with bounds, and open responses without", () => {
  type Node = Readonly<Record<string, any>>;
  const found: Record<string, Set<string>> = { request: new Set(), response: new Set() };
  /** Objects are named by their fields. */
  function visit(node: Node, side: "request" | "response", name = ""): void {
    if (typeof node !== "object" || node === null) return;
    const { type, properties, additionalProperties, format, maximum = Infinity, pattern } = node;
    const fields = properties === undefined ? "" : Object.keys(properties).join();
    if (fields !== "") found[side]?.add(`${fields}: ${additionalProperties}`);
    expect([side, fields, additionalProperties === false]).toEqual([
      ...[side, fields],
      side === "request" && fields !== "",
    ]);
    if (side === "response" && typeof type === "string") {
      expect([node, Object.keys(node).filter((keyword) => bounds.test(keyword))]).toEqual([
        node,
        [],
      ]);
    }
    const isLarge = side === "request" ? maximum >= 2 ** 31 : !/^(limit|quantity)$/.test(name);
    const expected = isLarge ? "int64" : undefined;
    if (type === "integer") expect([node, format]).toEqual([node, expected]);
    expect(["email", "idn-email"]).not.toContain(format);
    if (format === "date-time") expect(pattern).toBeUndefined();
    for (const [key, child] of Object.entries<Node>(node)) visit(child, side, key);
  }
  for (const operation of Object.values(openDocument.paths).flatMap(Object.values) as Node[]) {
    for (const { in: place, schema } of operation["parameters"])
      if (place !== "header") visit(schema, "request");
    visit(operation["requestBody"]?.content ?? {}, "request");
    for (const { content = {} } of Object.values<Node>(operation["responses"]))
      for (const { schema } of Object.values<Node>(content)) visit(schema, "response");
  }
  expect([...(found["request"] ?? [])]).toContain("sku,name,quantity,unit_price: false");
  expect([...(found["response"] ?? [])]).toContain("sku,name,quantity,unit_price: undefined");
});

const headerValues = [
  ...['"1"', 'W/"1"', 'w/"1"', '"7", "8"', ', "7" ,', "*", '""', '"é"', "1", '"1', "*, *", "**"],
  ...["", "a b", "a\tb", "ÿ", "a\u007f", "!~", "a,b", "k".repeat(255), "k".repeat(256)],
];

const changes = "updateUser replaceUser deleteUser updateOrder";
test.each([
  ["If-Match", "GET", `getUser getOrder ${changes}`],
  ["If-None-Match", "GET", `getUser getOrder ${changes}`],
  ["Idempotency-Key", "DELETE", `createUser createOrder ${changes}`],
])("the document has %s where the server reads it, with its pattern", async (name, method, ids) => {
  const patternOf = ({ parameters }: Operation) =>
    (parameters.find((one) => one.name === name)?.schema as { pattern: string } | undefined)
      ?.pattern;
  const having = operations.filter(patternOf);
  expect(having.map(({ operationId }) => operationId).sort()).toEqual(ids.split(" ").sort());
  const [pattern = "", ...others] = new Set(having.map(patternOf));
  expect(others).toEqual([]);
  for (const value of headerValues) {
    const headers = { [name]: value };
    const { status } = await server.call(method, "/users/999999", { headers });
    const isValid = new RegExp(pattern, "u").test(value);
    expect([value, status]).toEqual([value, isValid ? 404 : 400]);
  }
});

test("parameters of a query have neither a default nor an example, which tools would send", () => {
  const parameters = operations.flatMap((one) => one.parameters);
  const query = parameters.filter((one) => one.in === "query");
  expect(query.map(({ name }) => name)).toContain("offset");
  for (const parameter of query)
    expect({ ...parameter, ...parameter.schema }).not.toContainAnyKeys(["example", "default"]);
});

test("undocumented reports each difference of a response", async () => {
  const response = await server.call("GET", "/users/999999");
  const faultsOf = (text: string, headers = {}, status = 404) => {
    const all = new Headers({ ...Object.fromEntries(response.headers), ...headers });
    return undocumented("GET", "/api/v1/users/1", { status, headers: all, text }).join();
  };
  expect(faultsOf(response.text)).toBe("");
  for (const [fault, text, ...others] of [
    [/^status 418 is not documented$/, response.text, {}, 418],
    [/^body: .*additional properties$/, response.text.replace("{", '{"more":1,')],
    [/^body: .*must be string/, response.text.replace('"user not found"', "1")],
    [/,error code other is not documented$/, response.text.replace('"not_found"', '"other"')],
    [/^content type text\/html is not/, response.text, { "content-type": "text/html" }],
    [/^header x-more is not documented$/, response.text, { "x-more": "1" }],
    [/^header Cache-Control: public: /, response.text, { "cache-control": "public" }],
  ] as const)
    expect(faultsOf(text, ...others)).toMatch(fault);
});
