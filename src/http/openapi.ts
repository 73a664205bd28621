import { Elysia } from "elysia";
import { noQuery } from "./query.ts";
import { route } from "./route.ts";

/** The OpenAPI document. Public. */
export function openapi() {
  return new Elysia({ tags: ["system"] }).get("/api/v1/openapi.json", ...getOpenapi);
}

const getOpenapi = route(
  {
    query: noQuery,
    detail: {
      operationId: "getOpenapi",
      summary: "Get this document",
      description: "`user-api openapi` prints the same document.",
      security: [],
      responses: {
        200: {
          description: "This document",
          schema: {
            type: "object",
            properties: { openapi: { type: "string" } },
            required: ["openapi"],
          },
          example: { openapi: "3.1.0" },
        },
      },
    },
  },
  ({ document }) => document(),
);
