/** The types that `treaty<App>` of Eden infers for clients. They have no code. */
import type { Elysia } from "elysia";
import type { ErrorCode } from "../../base/error.ts";
import type { errorKinds } from "../../base/error-kinds.ts";
import type { Parsed } from "../../domain/record.ts";
import type { InputSchema } from "../input/input.ts";
import type { commonErrors, RouteDefinition } from "../openapi/detail.ts";
import type { ErrorEnvelope } from "../output/bodies.ts";

export type Input<Part> = Part extends InputSchema<infer Value> ? Value : undefined;

type Defaulted = "limit" | "offset" | "interval" | "time_zone";

/** The parameters that are no filter and have no default. */
type Required<Values> = {
  [Name in keyof Values]-?: object extends Pick<Values, Name> ? never : Exclude<Name, Defaulted>;
}[keyof Values];

/** A list can be text: `1,2`. */
type Query<Values> = [keyof Values] extends [never]
  ? Readonly<Record<string, never>>
  : {
      readonly [Name in keyof Values]?:
        | (Values[Name] extends readonly unknown[] | undefined
            ? Values[Name] | string
            : Values[Name])
        | undefined;
    } & Pick<Values, Required<Values>>;

type CommonError<Condition extends keyof typeof commonErrors> =
  (typeof commonErrors)[Condition][number];

type ErrorOf<Definition extends RouteDefinition> =
  | CommonError<"all">
  | (Definition extends { readonly public: true } ? never : CommonError<"token">)
  | (Definition extends { readonly scopes: unknown } ? CommonError<"scopes"> : never)
  | (Definition extends { readonly body: unknown } ? CommonError<"body"> : never)
  | (Definition extends { readonly errors: readonly (infer Code extends ErrorCode)[] }
      ? Code
      : never);

type ErrorBody<Code extends ErrorCode> = (typeof errorKinds)[Code] extends {
  readonly text: infer Text;
}
  ? Text
  : ErrorEnvelope<Code>;

type Created = { readonly response: { readonly status: 201 } };

type ClientData<Body> =
  Body extends Parsed<infer Value>
    ? unknown extends Value
      ? Extract<Body, string>
      : Value
    : never;

/** By status. Only a 304 has no body. */
type Responses<Definition extends RouteDefinition, Body> = {
  [Status in Definition extends Created ? 201 : 200]: ClientData<Body>;
} & (null extends Body ? { 304: "" } : unknown) & {
    [Code in ErrorOf<Definition> as (typeof errorKinds)[Code]["status"]]: ErrorBody<Code>;
  };

/** What a client may send to a route, and will receive, by the names of Elysia. */
export interface ClientRoute<Definition extends RouteDefinition = RouteDefinition, Body = unknown> {
  readonly body: Input<Definition["body"]>;
  readonly headers: unknown;
  readonly params: Input<Definition["params"]>;
  readonly query: Query<Input<Definition["query"]>>;
  readonly response: Responses<Definition, Body>;
}

/** Routes by path and method. `route` declares its `ClientRoute` as the result of its handler. */
type ClientRoutes<Routes> = {
  [Key in keyof Routes]: Routes[Key] extends { readonly response: { readonly 200: infer Route } }
    ? Route
    : ClientRoutes<Routes[Key]>;
};

export type ClientApp<App extends { readonly "~Routes": { readonly api: unknown } }> = Elysia<
  "",
  Elysia["~Singleton"],
  Elysia["~Definitions"],
  Elysia["~Metadata"],
  { api: ClientRoutes<App["~Routes"]["api"]> }
>;
