import { expect, test } from "bun:test";
import fc from "fast-check";
import { requestsTo, valuesNear } from "../arbitrary.ts";
import { document, faultOfBody } from "../documented.ts";
import { newOrder, newUser } from "../make.ts";
import { startSharedServer } from "../server.ts";

const server = await startSharedServer();
const user = await newUser(server);
await newOrder(server, user.id);

/** The same input in every run. */
const RUNS = { seed: 20_261_121, numRuns: 40 };
const tokens = [server.writeToken, server.readToken, null];

const operations = Object.entries(document.paths).flatMap(([template, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ template, method, operation })),
);

// `call` throws if a response is not as documented.
for (const { template, method, operation } of operations) {
  test(`${operation.operationId} responds as documented, without a 5xx, when the input is random`, async () => {
    const requests = requestsTo(template.replace("/api/v1", ""), operation, tokens);
    const property = fc.asyncProperty(requests, async ({ path, options }) => {
      const { status } = await server.call(method.toUpperCase(), path, options);
      expect(status).toBeLessThan(500);
    });
    await fc.assert(property, RUNS);
  });
}

/** Errors in bodies that the schema allows, because it cannot express these rules. */
const BEYOND_SCHEMAS = [
  /^Validation failed: user_id must be an existing user$/,
  /^Validation failed: items must add up to at (?:least|most) /,
  /^Validation failed: email must (?:be an email address|not have) /,
];

test.each(operations.filter(({ operation }) => operation.requestBody !== undefined))(
  "$operation.operationId accepts exactly the request bodies that the document allows",
  async ({ template, method, operation }) => {
    const path = template.replace("/api/v1", "").replace("{id}", "1");
    const schema = operation.requestBody?.content["application/json"]?.schema ?? {};
    let [accepted, rejected] = [0, 0];
    const property = fc.asyncProperty(valuesNear(schema), async (body) => {
      const { status, text, json } = await server.call(method.toUpperCase(), path, { body });
      const fault = faultOfBody(schema, body);
      const known = status === 400 && BEYOND_SCHEMAS.some((reason) => reason.test(json.error));
      expect([status === 400 && !known, text]).toEqual([fault !== null, text]);
      if (fault === null) accepted += 1;
      else rejected += 1;
    });
    await fc.assert(property, RUNS);
    // Otherwise the test would show nothing.
    expect(Math.min(accepted, rejected)).toBeGreaterThan(3);
  },
);
