/** The types that `treaty<App>` of Eden infers for clients. They have no code. */
import type { Elysia } from "elysia";

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
    : Exclude<Status, Method extends "get" ? 403 : never>]: Of[Status];
} & (Method extends "get"
  ? Of extends { readonly 412: unknown }
    ? { 304: "" }
    : unknown
  : unknown);

interface Route {
  readonly query: unknown;
  readonly response: unknown;
}

/** Routes by path and method. */
type ClientRoutes<Routes> = {
  [Key in keyof Routes]: Routes[Key] extends Route
    ? Omit<Routes[Key], keyof Route> & {
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
