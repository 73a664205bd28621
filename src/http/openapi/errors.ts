import { AppError, type ErrorCode, type FieldError, problemCodes } from "../../base/error.ts";
import { type ErrorKind, errorKinds } from "../../base/error-kinds.ts";
import { MAX_PROBLEMS, unknownField } from "../../base/validator.ts";
import type { JsonSchema } from "../input/input.ts";
import { JSON_TYPE, TEXT_TYPE } from "../input/media-types.ts";
import { errorEnvelope } from "../output/bodies.ts";
import { hasServiceDoc } from "../output/errors.ts";
import { header, object, ref, text, withCommonHeaders } from "./components.ts";

const invalid: FieldError = {
  field: "nmae",
  code: "not_allowed",
  problem: unknownField,
  allowed: ["email", "reference", "name", "metadata"],
};

export function errorSchemas(): Record<string, JsonSchema> {
  const kinds: [string, ErrorKind][] = Object.entries(errorKinds);
  const codes = kinds.flatMap(([code, { text }]) => (text === undefined ? code : []));
  const code = { ...text, examples: codes, description: "A stable identifier for programs" };
  const problems = {
    type: "array",
    items: ref("schemas", "FieldError"),
    description: `The problems, if the code is \`validation_failed\`: the first ${MAX_PROBLEMS}`,
  };
  const allowed = {
    description:
      "What is allowed instead: of `invalid_status_change` an array of statuses; of `invalid_refund` an object with `min` and `max`; of a page that is too large an object with the largest `limit`",
    examples: [["paid", "canceled"], { limit: 50 }, { min: 500, max: 3998 }],
  };
  const bound = { type: "integer", format: "int64" };
  const fieldError = {
    field: { ...text, examples: ["items[0].quantity"] },
    code: { ...text, examples: problemCodes, description: "The kind of the problem" },
    problem: { ...text, description: "For people. It may change" },
    min: { ...bound, description: "Of a `range` or a `length`" },
    max: { ...bound, description: "Of a `range` or a `length`" },
    allowed: {
      type: "array",
      items: text,
      description: "Of `not_allowed`: what is allowed instead",
    },
  };
  return {
    FieldError: object(fieldError, ["min", "max", "allowed"]),
    Error: object({
      data: { type: "null" },
      error: { ...text, description: "A message for people. It may change" },
      meta: object({ code, problems, allowed }, ["problems", "allowed"]),
    }),
  };
}

function errorContent(codes: readonly ErrorCode[]): Record<string, JsonSchema> {
  const content: Record<string, JsonSchema> = {};
  const examples: Record<string, JsonSchema> = {};
  for (const code of codes) {
    const { text: body, example = "", allowed }: ErrorKind = errorKinds[code];
    if (body !== undefined) {
      content[TEXT_TYPE] = { schema: { ...text, const: body }, example: body };
      continue;
    }
    const problems = code === "validation_failed" ? [invalid] : [];
    examples[code] = { value: errorEnvelope(new AppError(code, example, { problems, allowed })) };
    content[JSON_TYPE] = { schema: ref("schemas", "Error"), examples };
  }
  return content;
}

/** @param codes all with the same status */
export function errorResponseDoc(codes: readonly ErrorCode[]): JsonSchema {
  const kinds = codes.map((code): ErrorKind => errorKinds[code]);
  const has = (field: string) => kinds.some(({ headers }) => headers?.[field] !== undefined);
  return {
    description: kinds.map(({ meaning }) => meaning).join("; or: "),
    headers: withCommonHeaders({
      ...(has("www-authenticate") && {
        "WWW-Authenticate": header("The scheme, and what the token lacks (RFC 6750)", {}),
      }),
      ...(kinds.some(({ status }) => hasServiceDoc(status)) && {
        Link: ref("headers", "ServiceDoc"),
      }),
      ...(has("retry-after") && { "Retry-After": ref("headers", "RetryAfter") }),
      ...(codes.includes("method_not_allowed") && { Allow: ref("headers", "Allow") }),
      ...(codes.includes("unsupported_media_type") && {
        "Accept-Patch": ref("headers", "AcceptPatch"),
      }),
    }),
    content: errorContent(codes),
  };
}
