import type { AppError } from "../../base/error.ts";
import type { Token } from "../../domain/token.ts";
import type { receive } from "./body.ts";

export interface ResponseHead {
  status: number;
  /** By lower-case name. The default of `content-type` is JSON, that of `cache-control` is `no-store`. */
  headers: Record<string, string>;
}

/** A request in progress. The pipeline adds what each check finds: a handler gets it when it has passed all of them. */
export interface Call<Query = unknown, Params = unknown, Body = unknown, MaybeToken = Token> {
  readonly request: Request;
  readonly requestId: string;
  readonly startedMs: number;
  /** The pattern, not the path, so that the number of metrics is bounded. */
  readonly route: string;
  readonly head: ResponseHead;
  token: MaybeToken;
  params: Params;
  query: Query;
  body: Body;
  /** The body, until it is read. Missing in a read, and in a write that has not reserved its memory yet. */
  incoming: ReturnType<typeof receive> | undefined;
  /** Id of the record in the response, for the log, as the rest. */
  recordId: number | undefined;
  /** Time that the client has asked to wait, which is no part of the duration. */
  waitedMs: number | undefined;
  /** Why the response is 401, or 503 because another server is the primary. */
  denial: AppError | undefined;
}

/** A request that has not passed all checks. Its token is `null` if it needs none, or has not been authenticated. */
export type UncheckedCall = Call<unknown, unknown, unknown, Token | null>;
