import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { Store } from "../store.ts";
import type { Drain } from "./drain.ts";
import { envelope } from "./envelope.ts";
import { object } from "./openapi.components.ts";
import { documented, enveloped } from "./openapi.detail.ts";
import { no_query } from "./query.ts";

/**
 * Reports whether the server accepts requests and can write to the database. Public, so it gives no details.
 * @throws {AppError} unavailable
 */
export function health(store: Store, drain: Drain) {
  return new Elysia({ tags: ["system"] }).get(
    "/api/v1/health",
    async () => {
      if (drain.isDraining()) fail("unavailable", "the server is shutting down");
      await store.checkWritable();
      return envelope({ status: "ok" });
    },
    documented({
      query: no_query,
      detail: {
        operationId: "getHealth",
        summary: "Check health",
        description:
          "Healthy means that the server accepts requests and can write to the database.",
        security: [],
        responses: {
          200: enveloped(
            "The server is healthy",
            object({ status: { type: "string", const: "ok" } }),
            { status: "ok" },
          ),
        },
        errors: ["unavailable"],
      },
    }),
  );
}
