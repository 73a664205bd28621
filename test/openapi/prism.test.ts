// The document by a validator that no one here wrote: every operation, refusals included.
import { beforeAll, expect, test } from "bun:test";
import { openapiJson } from "../../src/http/app.ts";
import { exercise, type RecordedCall } from "../http/exercise.ts";
import { enabled } from "./made.ts";

/** @returns the ids of all operations, and what Prism objects to in an answer; empty when nothing */
async function createPrism() {
  const { getHttpOperationsFromSpec } = await import(
    "@stoplight/prism-http/dist/utils/operations.js"
  );
  const { validateOutput } = await import("@stoplight/prism-http/dist/validator/index.js");
  const known = await getHttpOperationsFromSpec(JSON.parse(openapiJson("1.2.3")));
  return {
    operations: new Set(known.map(({ iid }) => iid ?? "")),
    objections({ operation, answer }: RecordedCall): string[] {
      const resource = known.find(({ iid }) => iid === operation);
      if (resource === undefined) return [`unknown operation ${operation}`];
      const element = {
        statusCode: answer.status,
        headers: Object.fromEntries(answer.headers),
        body: answer.json ?? (answer.text === "" ? undefined : answer.text),
      };
      const result = validateOutput({ resource, element });
      return result._tag === "Left" ? result.left.map(({ message }) => message) : [];
    },
  };
}

const TIMEOUT_MS = 60_000;

let prism: Awaited<ReturnType<typeof createPrism>>;
let exchanges: RecordedCall[];
if (enabled) {
  beforeAll(async () => {
    prism = await createPrism();
    // An answer to HEAD has the headers of a body, but none.
    exchanges = (await exercise()).filter(({ method }) => method !== "HEAD");
  }, TIMEOUT_MS);
}

test.skipIf(!enabled)(
  "`Prism` finds every answer as documented when all operations are exercised",
  () => {
    expect(new Set(exchanges.map(({ operation }) => operation))).toEqual(prism.operations);
    for (const exchange of exchanges) {
      const { method, path, answer } = exchange;
      const objections = prism.objections(exchange);
      expect([method, path, answer.status, objections]).toEqual([method, path, answer.status, []]);
    }
  },
);

/** Of a body that is right: one that is not. */
function wrong(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return 1;
  return { ...json, data: 1 };
}

// So that it is known to look at each of them.
test.skipIf(!enabled)(
  "`Prism` objects when an answer's body, type, status or headers are others",
  () => {
    for (const exchange of exchanges) {
      const { answer, operation } = exchange;
      const change = (changed: object) =>
        prism.objections({ ...exchange, answer: { ...answer, ...changed } });
      const without = new Headers(answer.headers);
      without.delete("x-request-id");
      const typed = new Headers(answer.headers);
      typed.set("content-type", "text/html");
      const found: Record<string, number> = {
        headers: change({ headers: without }).length,
        status: change({ status: 418 }).length,
      };
      // 304 has neither, and of what metrics and the document are it says little.
      if (answer.text !== "") found["type"] = change({ headers: typed }).length;
      if (answer.json !== undefined && operation !== "getOpenapi") {
        found["body"] = change({ json: wrong(answer.json) }).length;
      }
      for (const [part, count] of Object.entries(found)) {
        expect([operation, answer.status, part, count > 0]).toEqual([
          operation,
          answer.status,
          part,
          true,
        ]);
      }
    }
  },
);
