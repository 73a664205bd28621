/** The document as OpenAPI 3.0, for generators that do not understand 3.1. */
type Node = Readonly<Record<string, any>>;

function withoutNull(types: unknown): unknown {
  const [type = "object"] = [types].flat().filter((one) => one !== "null");
  return type;
}

export function asIn30(node: unknown): any {
  if (Array.isArray(node)) return node.map(asIn30);
  if (typeof node !== "object" || node === null) return node;
  const { examples, const: constant, propertyNames: _, ...others } = node as Node;
  const rest: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(others)) {
    // The values of examples are not schemas.
    rest[name] = ["example", "value"].includes(name) ? member : asIn30(member);
  }
  const { type, anyOf } = others;
  // A map of properties can have one with this name.
  const hasType = typeof type === "string" || Array.isArray(type);
  const nullable =
    (hasType && [type].flat().includes("null")) ||
    (Array.isArray(anyOf) && anyOf.some((one) => one.type === "null"));
  if (hasType) rest["type"] = withoutNull(type);
  // A value of any type, for which the generator of Java has none.
  else if (Array.isArray(examples) && anyOf === undefined) rest["type"] = "object";
  if (nullable) rest["nullable"] = true;
  if (Array.isArray(anyOf)) rest["anyOf"] = anyOf.filter((one) => one.type !== "null").map(asIn30);
  if (Array.isArray(examples)) rest["example"] = examples[0];
  else if (examples !== undefined) rest["examples"] = examples;
  if (constant !== undefined) rest["enum"] = [constant];
  return JSON.parse(JSON.stringify(rest));
}

export function documentAsIn30(document: Node): Node {
  const { summary: _, license: __, ...info } = document["info"];
  return { ...asIn30(document), openapi: "3.0.3", info };
}
