// Random input near input that is valid.
import { expect, test } from "bun:test";
import fc, { type Arbitrary } from "fast-check";
import { faultOfBody } from "../documented.ts";
import { operations } from "../exercise.ts";
import { newEmail, newOrder, newUser } from "../make.ts";
import { type CallOptions, startSharedServer } from "../server.ts";

const server = await startSharedServer();
const user = await newUser(server);
await newOrder(server, user.id);

/** The same input in every run. */
const RUNS = { seed: 20_261_121, numRuns: 60 };

const metadata = { note: "a", ["k".repeat(40)]: "v".repeat(500) };
const ofUser = { email: newEmail(), name: "n".repeat(200), reference: "R-1", metadata };
const items = [{ sku: "s".repeat(64), name: "Tea", quantity: 1_000_000, unit_price: -1 }];
const ofOrder = { reference: "r".repeat(255), metadata };
const bodies: Readonly<Record<string, object>> = {
  createUser: ofUser,
  replaceUser: ofUser,
  updateUser: ofUser,
  createOrder: {
    user_id: 1,
    currency: "EUR",
    items: [{ ...items[0], unit_price: 1 }, ...items],
    ...ofOrder,
  },
  updateOrder: { user_id: 1, status: "paid", refunded: 0, ...ofOrder },
};

/** One in this many values may be anything. */
const ODDS = 20;

function orWild<Value>(arbitrary: Arbitrary<Value>, wild: Arbitrary<unknown>): Arbitrary<unknown> {
  return fc.oneof({ arbitrary, weight: ODDS - 1 }, { arbitrary: wild, weight: 1 });
}

/** Text without U+0000, which is rejected, but which the schemas do not exclude. */
const text = (minLength: number, maxLength: number) =>
  fc.string({ unit: "binary", minLength, maxLength }).filter((one) => !one.includes("\0"));
const wildValue = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  fc.maxSafeInteger(),
  text(0, 50),
  text(150, 700),
);

/** The value with any part left out, or replaced by any JSON value. */
function near(value: unknown): Arbitrary<unknown> {
  if (typeof value !== "object" || value === null) return orWild(fc.constant(value), wildValue);
  if (Array.isArray(value)) return orWild(fc.tuple(...value.map(near)), wildValue);
  const members = Object.entries(value).map(([name, member]) => [name, near(member)]);
  const model: Record<string, Arbitrary<unknown>> = Object.fromEntries(members);
  const partial = fc.record(model, { requiredKeys: [] });
  const record = fc.oneof({ arbitrary: fc.record(model), weight: 4 }, partial);
  return orWild(record, wildValue);
}

const words = '1 2 0 50 -id paid record R-1 "1" * 2026-01-01T00:00:00Z'.split(" ");
const types = "application/json application/merge-patch+json text/plain APPLICATION/JSON".split(
  " ",
);

// `call` throws if a response is not as documented.
test.each(operations())(
  "$operation responds as documented, without a 5xx, when the input is random",
  async ({ operation, template, method, definition }) => {
    const wildText = (place: string) =>
      place === "header" ? fc.string({ unit: "grapheme-ascii" }) : text(1, 20);
    const values = definition.parameters.map(({ in: place, required }) => {
      const value = orWild(fc.constantFrom(...words), wildText(place)).map(String);
      return required
        ? value.filter((one) => !/^\.*$/.test(one))
        : fc.option(value, { nil: undefined });
    });
    const body = operation in bodies ? near(bodies[operation]) : fc.constant(undefined);
    const type = fc.option(fc.constantFrom(...types), { nil: undefined });
    const token = fc.constantFrom(server.writeToken, server.writeToken, server.readToken, null);
    const more = fc.option(text(1, 20), { nil: undefined, freq: ODDS });
    const request = fc.record({ values: fc.tuple(...values), body, type, token, more });
    const property = fc.asyncProperty(request, async ({ values, type, more, ...options }) => {
      const query = more === undefined ? [] : [encodeURIComponent(more)];
      const headers: Record<string, string> = type === undefined ? {} : { "content-type": type };
      let target = template;
      for (const [at, { name, in: place }] of definition.parameters.entries()) {
        const value = values[at];
        if (value === undefined) continue;
        if (place === "header") headers[name] = value;
        else if (place === "query") query.push(`${name}=${encodeURIComponent(value)}`);
        else target = target.replace(`{${name}}`, () => encodeURIComponent(value));
      }
      const sent: CallOptions = { ...options, headers };
      const { status } = await server.call(method, `${target}?${query.join("&")}`, sent);
      expect(status).toBeLessThan(500);
    });
    await fc.assert(property, RUNS);
  },
);

/** Errors in bodies that the schema allows, because it cannot express these rules. */
const BEYOND_SCHEMAS =
  /^Validation failed: (?:user_id must be an existing|items must add up to|email must (?:be an email address|not have)|body must be at most)/;

test.each(operations().filter(({ operation }) => operation in bodies))(
  "$operation accepts exactly the request bodies that the document allows",
  async ({ operation, path, method, definition }) => {
    const schema = definition.requestBody?.content["application/json"]?.schema ?? {};
    const counts = [0, 0];
    const property = fc.asyncProperty(near(bodies[operation]), async (body) => {
      const { status, text, json } = await server.call(method, path, { body });
      const hasFault = faultOfBody(schema, body) !== null;
      if (status === 400 && BEYOND_SCHEMAS.test(json.error)) return;
      expect([status === 400, text]).toEqual([hasFault, text]);
      counts[Number(hasFault)]! += 1;
    });
    await fc.assert(property, RUNS);
    // Otherwise the test would show nothing.
    expect(Math.min(...counts)).toBeGreaterThan(3);
  },
);
