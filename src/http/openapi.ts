/**
 * The OpenAPI document. It is built on first use, to keep startup fast.
 * @see https://spec.openapis.org/oas/v3.1.0
 */
import { Elysia } from "elysia";
import { JSON_TYPE } from "./envelope.ts";
import { headers, parameters } from "./openapi.headers.ts";
import { paths } from "./openapi.paths.ts";
import { responses } from "./openapi.responses.ts";
import { type Json, schemas } from "./openapi.schemas.ts";
import { no_query } from "./query.ts";

const description = `
Users and their orders, as JSON over HTTP.

- **Responses** are \`{"data": …, "error": null}\`. Lists add \`meta\`. Errors have a sentence for people in \`error\`
  and a stable identifier for programs in \`meta.code\`. Validation errors list up to 20 problems in
  \`meta.problems\`. A few errors are plain text, as documented for each operation.
- **Authentication**: send a token as \`Authorization: Bearer …\`. A token of scope \`read\` may only GET and HEAD.
  Without a valid token, every path except the public ones returns 401, including paths that do not exist.
- **Input is strict**: unknown or duplicate fields and parameters, read-only fields, and numbers that would lose
  precision return a 400 that names the field. Text is well-formed Unicode without U+0000.
- **HEAD** works wherever GET does.
- **Retries**: send an \`Idempotency-Key\` with POST. **Concurrent edits**: send the \`ETag\` back in \`If-Match\`.
- **Money** is an integer in the minor unit of its currency.
- **Within v1**, fields, operations and error codes are only added: ignore what you do not know.
`.trim();

/** @param version the version of the program */
function createDocument(version: string): Json {
  return {
    openapi: "3.1.0",
    info: {
      title: "user-api",
      version,
      summary: "Users and orders",
      description,
      license: { name: "MIT (the user-api authors)", identifier: "MIT" },
    },
    servers: [{ url: "/", description: "This server" }],
    security: [{ token: [] }],
    tags: [
      { name: "users", description: "Customers" },
      { name: "orders", description: "Orders and their status" },
      { name: "system", description: "Health, metrics and documentation" },
    ],
    paths: paths(),
    components: {
      securitySchemes: {
        token: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "uat_ followed by 36 letters and digits",
          description:
            "Create one with `user-api token create NAME`. Scope `write` allows every method, `read` only GET and HEAD.",
        },
      },
      schemas: schemas(),
      headers: headers(),
      parameters: parameters(),
      responses: responses(),
    },
  };
}

/** The document as JSON text, for the server and for `user-api openapi`. */
export function openapiJson(version: string): string {
  return JSON.stringify(createDocument(version));
}

export function openapi(version: string) {
  let text: string | null = null;
  return new Elysia().get(
    "/api/v1/openapi.json",
    ({ set }) => {
      set.headers["content-type"] = JSON_TYPE;
      text ??= openapiJson(version);
      return text;
    },
    { query: no_query },
  );
}
