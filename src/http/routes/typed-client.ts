/** The types that `treaty<App>` of Eden infers for clients. They have no code. */
import type { Elysia, ElysiaCustomStatusResponse } from "elysia";
import type { ErrorCode } from "../../base/error.ts";
import type { JsonText } from "../../domain/record.ts";
import type { commonErrors } from "../openapi/detail.ts";
import type { ErrorEnvelope, JsonBlob } from "../output/bodies.ts";
import type { errorTemplates } from "../output/errors.ts";

type CommonError<Condition extends keyof typeof commonErrors> =
  (typeof commonErrors)[Condition][number];

/** The parts of a route's definition that decide its responses. */
interface Documented {
  readonly public?: unknown;
  readonly detail?: unknown;
  readonly body?: unknown;
}

type ErrorOf<Definition extends Documented> =
  | CommonError<"all">
  | (Definition extends { readonly public: true } ? never : CommonError<"token" | "write">)
  | (Definition extends { readonly body: unknown } ? CommonError<"body"> : never)
  | (Definition["detail"] extends { readonly errors: readonly (infer Code extends ErrorCode)[] }
      ? Code
      : never);

type ErrorBody<Code extends ErrorCode> = (typeof errorTemplates)[Code] extends {
  readonly text: infer Text;
}
  ? Text
  : ErrorEnvelope<Code>;

/** Distributes over the error codes. */
type ErrorResponse<Code extends ErrorCode> = Code extends ErrorCode
  ? ElysiaCustomStatusResponse<(typeof errorTemplates)[Code]["status"], ErrorBody<Code>>
  : never;

/** The statuses of successful responses. */
type SuccessStatus<Definition extends Documented> = Definition["detail"] extends {
  readonly responses: infer Responses;
}
  ? Extract<keyof Responses, number>
  : 200;

/** The value of JSON, or text that is not JSON. */
type Parsed<Body> =
  Body extends JsonText<infer Value>
    ? unknown extends Value
      ? string
      : Value
    : Body extends JsonBlob<infer Value>
      ? unknown extends Value
        ? never
        : Value
      : never;

/** What a client receives from a route, in the form in which Elysia infers it from the result of a handler. */
export type ClientResponses<Definition extends Documented, Body> =
  | ElysiaCustomStatusResponse<SuccessStatus<Definition>, Parsed<Body>>
  | ErrorResponse<ErrorOf<Definition>>;

/** Every parameter has a default or is a filter. The query of a route without parameters is empty. */
type Query<Of> = [keyof Of] extends [never]
  ? Readonly<Record<string, never>>
  : { readonly [Name in keyof Of]?: Of[Name] | undefined };

/** The 422 that Elysia itself would return. Here, an invalid request is a 400. */
interface ElysiaValidationError {
  readonly type: "validation";
}

/** GET does not need a token that may write, and responds to `If-None-Match` with 304 if it has preconditions. */
type Responses<Of, Method> = {
  [Status in keyof Of as Of[Status] extends ElysiaValidationError
    ? never
    : Exclude<Status, Method extends "get" ? 403 : never>]: Exclude<
    Of[Status],
    ElysiaValidationError
  >;
} & (Method extends "get"
  ? Of extends { readonly 412: unknown }
    ? { 304: "" }
    : unknown
  : unknown);

interface ClientRoute {
  readonly query: unknown;
  readonly response: unknown;
}

/** Routes by path and method. */
type ClientRoutes<Routes> = {
  [Key in keyof Routes]: Routes[Key] extends ClientRoute
    ? Omit<Routes[Key], keyof ClientRoute> & {
        query: Query<Routes[Key]["query"]>;
        response: Responses<Routes[Key]["response"], Key>;
      }
    : ClientRoutes<Routes[Key]>;
};

/** The app as clients see it: its routes under `/api`, with what they may send and will receive. */
export type ClientApp<App extends { readonly "~Routes": { readonly api: unknown } }> = Elysia<
  "",
  Elysia["~Singleton"],
  Elysia["~Definitions"],
  Elysia["~Metadata"],
  { api: ClientRoutes<App["~Routes"]["api"]> }
>;
