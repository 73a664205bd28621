/**
 * The API's description of itself. Made when it is first asked for: it costs the start nothing.
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

- **Answers** are \`{"data": …, "error": null}\`, lists with \`meta\`. Refusals have \`data\` null and a sentence in
  \`error\`; where the input is wrong, \`meta.problems\` lists what is. A few refusals are plain text, as the
  operations say.
- **A token** goes into \`Authorization: Bearer …\` and nowhere else; of scope \`read\` it may GET and HEAD. Without one, a path that does not exist is
  a 401 as well; with one it is a 404 \`not found\`.
- **Nothing is dropped silently**: an unknown field or parameter, one given twice, a read-only field or a number
  that would be rounded is a 400 that names it. Text is well-formed Unicode without U+0000.
- **HEAD** answers wherever GET does, without the body.
- **Retry** a POST with \`Idempotency-Key\`; **edit** with the \`ETag\` as \`If-Match\`.
- **Money** is an integer in the minor unit of its currency.
- **Within v1** fields and operations are only added: ignore what you do not know.
`.trim();

/** @param version of the program */
function createDocument(version: string): Json {
  return {
    openapi: "3.1.0",
    info: {
      title: "user-api",
      version,
      summary: "Users and orders",
      description,
      contact: { name: "Whoever runs this server" },
      license: { name: "All rights reserved", identifier: "LicenseRef-All-Rights-Reserved" },
    },
    servers: [{ url: "/", description: "The server that this document is from" }],
    security: [{ token: [] }],
    tags: [
      { name: "users", description: "Who orders" },
      { name: "orders", description: "What was ordered, and how far it is" },
      { name: "system", description: "The service itself" },
    ],
    paths: paths(),
    components: {
      securitySchemes: {
        token: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "uat_ and 36 letters and digits",
          description:
            "Made with `user-api token create NAME`. The scope `write` may do all, `read` may GET and HEAD.",
        },
      },
      schemas: schemas(),
      headers: headers(),
      parameters: parameters(),
      responses: responses(),
    },
  };
}

/** The document as JSON, the same to who asks the server and who asks the command line. */
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
