/** Random input made of the API document: what it allows, and now and then what it does not. */
import fc, { type Arbitrary } from "fast-check";
import type { Operation, Parameter } from "./documented.ts";
import type { CallOptions } from "./server.ts";

interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly format?: string;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly items?: JsonSchema;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly propertyNames?: JsonSchema;
  readonly examples?: readonly string[];
  readonly additionalProperties?: JsonSchema | false;
}

/** Now and then what is not allowed: out of this many times, once. */
const ODDS = 20;
const MAX_ITEMS = 4;

function orWild<Value>(arbitrary: Arbitrary<Value>, wild: Arbitrary<unknown>): Arbitrary<unknown> {
  return fc.oneof({ arbitrary, weight: ODDS - 1 }, { arbitrary: wild, weight: 1 });
}

/** Without U+0000: that it is refused the document says in words, since a schema hardly can. */
function plain(minLength: number, maxLength: number): Arbitrary<string> {
  return fc.string({ unit: "binary", minLength, maxLength }).filter((one) => !one.includes("\0"));
}

function text({ format, pattern, minLength = 0, maxLength = 600 }: JsonSchema): Arbitrary<string> {
  if (format === "idn-email") return fc.emailAddress();
  const any = plain(minLength, maxLength);
  if (pattern === undefined) return any;
  const visible = fc.string({ unit: "grapheme-ascii", minLength: 1, maxLength: 40 });
  const expression = new RegExp(pattern, "u");
  return fc.oneof(visible, any).filter((made) => expression.test(made));
}

function objects(schema: JsonSchema, of: (schema: JsonSchema) => Arbitrary<unknown>) {
  const { properties = {}, required = [], propertyNames, additionalProperties } = schema;
  if (additionalProperties) {
    const allowed = text({ maxLength: 40, ...propertyNames });
    const names = orWild(allowed, plain(0, 60)).map(String);
    return fc.dictionary(names, of(additionalProperties), { maxKeys: MAX_ITEMS });
  }
  const members = Object.entries(properties).map(([name, member]) => [name, of(member)]);
  const model: Record<string, Arbitrary<unknown>> = Object.fromEntries(members);
  return fc.record(model, { requiredKeys: [...required] });
}

/** @returns what the schema allows, in which `of` makes the parts */
function made(schema: JsonSchema, of: (schema: JsonSchema) => Arbitrary<unknown>) {
  const { type, items = {}, minimum = 0, maximum = Number.MAX_SAFE_INTEGER } = schema;
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (Array.isArray(type)) return fc.oneof(...type.map((one) => of({ ...schema, type: one })));
  switch (type) {
    case "null":
      return fc.constant(null);
    case "string":
      return text(schema);
    case "integer":
      // Small ones are ids of what is there, and totals that are no larger than they may be.
      return fc.oneof(
        fc.integer({ min: minimum, max: Math.min(minimum + 5, maximum) }),
        fc.bigInt({ min: BigInt(minimum), max: BigInt(maximum) }).map(Number),
      );
    case "array": {
      const { minItems = 0, maxItems = MAX_ITEMS } = schema;
      const maxLength = Math.min(maxItems, minItems + MAX_ITEMS);
      return fc.array(of(items), { minLength: minItems, maxLength });
    }
    default:
      return objects(schema, of);
  }
}

/** Values that the schema allows, but each part of one may be anything that JSON has. */
export function valuesNear(schema: JsonSchema): Arbitrary<unknown> {
  const wild = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.maxSafeInteger(), plain(150, 700));
  return orWild(made(schema, valuesNear), wild);
}

/** Where it cannot stand for another path or another parameter. */
const wild_text = fc.string({ unit: "binary", maxLength: 20 }).filter((one) => one !== "");
const wild_header = fc.string({ unit: "grapheme-ascii", maxLength: 300 });

function texts({ in: place, schema, required = false }: Parameter): Arbitrary<string | undefined> {
  const { examples = [] } = schema as JsonSchema;
  // Random text hardly ever matches the pattern of a list of entity tags.
  const told = place === "header" && examples.length > 0;
  const allowed = told ? fc.constantFrom(...examples) : made(schema as JsonSchema, valuesNear);
  const one = orWild(allowed, place === "header" ? wild_header : wild_text).map(String);
  if (required) return one.filter((value) => !/^\.{0,2}$/.test(value));
  return fc.option(one, { nil: undefined });
}

const TYPES = [
  "application/json",
  "application/merge-patch+json",
  "text/plain",
  "APPLICATION/JSON",
  'application/json; charset="UTF-8"',
  "application/json; charset=utf-16",
];

export interface RandomRequest {
  readonly path: string;
  readonly options: CallOptions;
}

/** @param template of the path, under `/api/v1` @param tokens any of which may be sent */
export function requestsTo(
  template: string,
  { parameters, requestBody }: Operation,
  tokens: readonly (string | null)[],
): Arbitrary<RandomRequest> {
  const values = fc.tuple(...parameters.map(texts));
  const content = Object.values(requestBody?.content ?? {});
  const body = content.length === 0 ? fc.constant(undefined) : valuesNear(content[0]?.schema ?? {});
  const type = fc.option(fc.constantFrom(...TYPES), { nil: undefined });
  const token = orWild(fc.constant(tokens[0]), fc.constantFrom(...tokens)) as Arbitrary<
    string | null
  >;
  const more = fc.option(wild_text, { nil: undefined, freq: ODDS });
  return fc.record({ values, body, type, token, more }).map((drawn) => {
    const query: string[] = drawn.more === undefined ? [] : [encodeURIComponent(drawn.more)];
    const headers: Record<string, string> = {};
    if (drawn.type !== undefined) headers["content-type"] = drawn.type;
    let path = template;
    for (const [at, { name, in: place }] of parameters.entries()) {
      const value = drawn.values[at];
      if (value === undefined) continue;
      if (place === "header") headers[name] = value;
      else if (place === "query") query.push(`${name}=${encodeURIComponent(value)}`);
      else path = path.replace(`{${name}}`, () => encodeURIComponent(value));
    }
    const search = query.length === 0 ? "" : `?${query.join("&")}`;
    return { path: `${path}${search}`, options: { body: drawn.body, token: drawn.token, headers } };
  });
}
