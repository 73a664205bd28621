import { Elysia } from "elysia";
import { fail } from "../error.ts";
import { jsonText } from "../record.ts";
import { envelope } from "./bodies.ts";
import { object } from "./openapi/components.ts";
import { enveloped } from "./openapi/detail.ts";
import { noQuery } from "./query.ts";
import { route } from "./route.ts";

/** Reports whether the server accepts requests and can write to the database. Public, so it gives no details. */
export function health() {
  return new Elysia({ tags: ["system"] }).get("/api/v1/health", ...getHealth);
}

const ok = { status: "ok" };

const getHealth = route(
  {
    query: noQuery,
    detail: {
      operationId: "getHealth",
      summary: "Check health",
      description: "Healthy means that the server accepts requests and can write to the database.",
      security: [],
      responses: {
        200: enveloped(
          "The server is healthy",
          object({ status: { type: "string", const: "ok" } }),
          ok,
        ),
      },
      errors: ["unavailable"],
    },
  },
  async ({ drain, store }) => {
    if (drain.isDraining()) fail("unavailable", "the server is shutting down");
    await store.checkWritable();
    return envelope(jsonText(ok));
  },
);
