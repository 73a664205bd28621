// Validates responses against the document with an independent validator: every operation, errors included.
import { beforeAll, expect, test } from "bun:test";
import { openapiJson } from "../../src/http/app.ts";
import { exercise, type RecordedCall } from "../http/exercise.ts";
import { enabled } from "./made.ts";

/** @returns the ids of all operations, and a function that returns Prism's objections to a response */
async function createPrism() {
  const { getHttpOperationsFromSpec } = await import(
    "@stoplight/prism-http/dist/utils/operations.js"
  );
  const { validateOutput } = await import("@stoplight/prism-http/dist/validator/index.js");
  const known = await getHttpOperationsFromSpec(JSON.parse(openapiJson("1.2.3")));
  return {
    operations: new Set(known.map(({ iid }) => iid ?? "")),
    objections({ operation, response }: RecordedCall): string[] {
      const resource = known.find(({ iid }) => iid === operation);
      if (resource === undefined) return [`unknown operation ${operation}`];
      const element = {
        statusCode: response.status,
        headers: Object.fromEntries(response.headers),
        body: response.json ?? (response.text === "" ? undefined : response.text),
      };
      const result = validateOutput({ resource, element });
      return result._tag === "Left" ? result.left.map(({ message }) => message) : [];
    },
  };
}

const TIMEOUT_MS = 60_000;

let prism: Awaited<ReturnType<typeof createPrism>>;
let calls: RecordedCall[];
if (enabled) {
  beforeAll(async () => {
    prism = await createPrism();
    // A response to HEAD has the headers of a body, but no body.
    calls = (await exercise()).filter(({ method }) => method !== "HEAD");
  }, TIMEOUT_MS);
}

test.skipIf(!enabled)("`Prism` accepts every response of every operation", () => {
  expect(new Set(calls.map(({ operation }) => operation))).toEqual(prism.operations);
  for (const call of calls) {
    const { method, path, response } = call;
    const objections = prism.objections(call);
    expect([method, path, response.status, objections]).toEqual([
      method,
      path,
      response.status,
      [],
    ]);
  }
});

/** @returns a body that does not match the schema */
function wrong(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return 1;
  return { ...json, data: 1 };
}

// Shows that Prism checks each part.
test.skipIf(!enabled)(
  "`Prism` rejects a response when its body, type, status or headers differ",
  () => {
    for (const call of calls) {
      const { response, operation } = call;
      const change = (changed: object) =>
        prism.objections({ ...call, response: { ...response, ...changed } });
      const without = new Headers(response.headers);
      without.delete("x-request-id");
      const typed = new Headers(response.headers);
      typed.set("content-type", "text/html");
      const found: Record<string, number> = {
        headers: change({ headers: without }).length,
        status: change({ status: 418 }).length,
      };
      // A 304 has neither. The document says little about the bodies of metrics and of itself.
      if (response.text !== "") found["type"] = change({ headers: typed }).length;
      if (response.json !== undefined && operation !== "getOpenapi") {
        found["body"] = change({ json: wrong(response.json) }).length;
      }
      for (const [part, count] of Object.entries(found)) {
        expect([operation, response.status, part, count > 0]).toEqual([
          operation,
          response.status,
          part,
          true,
        ]);
      }
    }
  },
);
