/** Compares responses with the OpenAPI document. A difference is an error in one of the two. */
import Ajv2020, { type ValidateFunction } from "ajv/dist/2020";
import addFormats from "ajv-formats";
import { isTime } from "../../src/base/schema.ts";
import { openapiJson } from "../../src/http/app.ts";

export interface ReceivedResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

interface Media {
  readonly schema: object;
  readonly examples?: Readonly<Record<string, { readonly value: any }>>;
}

interface DocumentedResponse {
  readonly headers: Readonly<Record<string, { required: boolean; schema: object }>>;
  /** By media type. */
  readonly content?: Readonly<Record<string, Media>>;
}

export interface Operation {
  readonly operationId: string;
  /** Scopes by scheme; empty if the operation is public. */
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters: readonly { name: string; in: string; required?: boolean; schema: object }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, Media>> };
  readonly responses: Readonly<Record<string, DocumentedResponse>>;
}

type Methods = Readonly<Record<string, Operation>>;

/** Headers of the transport and of CORS, which are not documented by operation. */
const CARRIED =
  /^(?:content-(?:type|length)|connection|date|keep-alive|transfer-encoding|vary|access-control-.*)$/;

function resolved(value: unknown, root: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => resolved(item, root));
  const { $ref: reference } = value as { $ref?: string };
  if (reference === undefined) {
    const members = Object.entries(value).map(([name, member]) => [name, resolved(member, root)]);
    return Object.fromEntries(members);
  }
  let target = root as any;
  for (const name of reference.slice("#/".length).split("/")) target = target[name];
  return resolved(target, root);
}

/** Of a text with examples: they are all its values. */
const LISTED = ["code", "status", "type"];

/** @returns the document with closed responses, so that no field or value is returned that it does not name */
function closed(value: unknown, name = ""): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => closed(item));
  const members = Object.entries(value).map(([key, member]) => [key, closed(member, key)]);
  const { examples, properties, type } = value as any;
  if (Array.isArray(examples) && LISTED.includes(name)) {
    members.push(["enum", Array.isArray(type) ? [...examples, null] : examples]);
  }
  // The schema of the document itself has only what generators need.
  const isSchema = type === "object" && properties !== undefined && !("openapi" in properties);
  return { ...Object.fromEntries(members), ...(isSchema && { additionalProperties: false }) };
}

type Document = Readonly<Record<"paths", Readonly<Record<string, Methods>>>>;

const rawDocument = JSON.parse(openapiJson("0.0.0"));
export const openDocument = resolved(rawDocument, rawDocument) as Document;
export const document = closed(openDocument) as Document;

const paths = Object.entries(document.paths).map(([template, methods]) => ({
  pattern: new RegExp(`^${template.replaceAll(".", "\\.").replace(/\{\w+\}/g, "[^/]+")}$`),
  methods,
}));

function createValidator(coerceTypes: boolean) {
  const ajv = new Ajv2020({ strict: false, coerceTypes, allErrors: true });
  addFormats(ajv);
  // The document allows any time of RFC 3339, and the server returns them in one form.
  ajv.addFormat("date-time", isTime);
  // The same few schemas are those of hundreds of responses, and compiling one takes 9 ms.
  const compiled = new Map<string, ValidateFunction>();
  return (schema: object, value: unknown): string | null => {
    const validate = compiled.getOrInsertComputed(JSON.stringify(schema), () =>
      ajv.compile(schema),
    );
    return validate(value) ? null : ajv.errorsText(validate.errors);
  };
}

export const faultOfBody = createValidator(false);
/** A header is text, whatever the type in its schema. */
const faultOfHeader = createValidator(true);

export function exampleCodes({ examples = {} }: Partial<Media> = {}): string[] {
  return [...new Set(Object.values(examples).map(({ value }) => value.meta.code))];
}

function* faultsOfHeaders(
  { headers: expected }: DocumentedResponse,
  headers: Headers,
): Generator<string> {
  const known = new Set(Object.keys(expected).map((name) => name.toLowerCase()));
  for (const name of headers.keys()) {
    if (!known.has(name) && !CARRIED.test(name)) yield `header ${name} is not documented`;
  }
  for (const [name, { required, schema }] of Object.entries(expected)) {
    const value = headers.get(name);
    if (value === null && required) yield `header ${name} is missing`;
    const fault = value === null ? null : faultOfHeader(schema, value);
    if (fault !== null) yield `header ${name}: ${value}: ${fault}`;
  }
}

function* faultsOfBody(
  documented: DocumentedResponse,
  response: ReceivedResponse,
  hasBody: boolean,
): Generator<string> {
  const { content } = documented;
  if (content === undefined) {
    if (response.text !== "") yield "the body is not documented";
    return;
  }
  const type = response.headers.get("content-type") ?? "none";
  const media = content[type];
  if (media === undefined) {
    yield `content type ${type} is not documented`;
  } else if (hasBody) {
    const value = type === "application/json" ? JSON.parse(response.text) : response.text;
    const fault = faultOfBody(media.schema, value);
    if (fault !== null) yield `body: ${fault}`;
    const codes = exampleCodes(media);
    const code = value?.meta?.code;
    if (codes.length > 0 && !codes.includes(code)) yield `error code ${code} is not documented`;
  }
}

/** @returns the documented response. A method that is not listed has the 401 and the 405 of the path */
function responseOf(
  methods: Methods,
  method: string,
  status: number,
): DocumentedResponse | undefined {
  const listed = methods[method === "HEAD" ? "get" : method.toLowerCase()];
  if (listed !== undefined) return listed.responses[status];
  const [other] = Object.values(methods);
  return status === 401 || status === 405 ? other?.responses[status] : undefined;
}

/** @returns the differences from the document; empty if there are none or the path is not documented */
export function undocumented(method: string, path: string, response: ReceivedResponse): string[] {
  const [bare = ""] = path.split("?");
  const found = paths.find(({ pattern }) => pattern.test(bare));
  const preflight = method === "OPTIONS" && response.status === 204;
  if (found === undefined || preflight) return [];
  const documented = responseOf(found.methods, method, response.status);
  if (documented === undefined) return [`status ${response.status} is not documented`];
  return [
    ...faultsOfHeaders(documented, response.headers),
    ...faultsOfBody(documented, response, method !== "HEAD"),
  ];
}

export function expectDocumented(method: string, path: string, response: ReceivedResponse): void {
  const faults = undocumented(method, path, response);
  if (faults.length === 0) return;
  const { status, text } = response;
  throw new Error(`${method} ${path}: ${status} ${text.slice(0, 500)}\n${faults.join("\n")}`);
}
