/**
 * The checks that each request passes before the handler of its route: docs/architecture.md has their order. Elysia's
 * hooks would validate before they authenticate, and make a GET more expensive.
 */
import { AppError, fail, failField } from "../base/error.ts";
import { andThen, type MaybePromise } from "../base/maybe-promise.ts";
import { failNotPrimary, NOT_PRIMARY, requireRecent } from "../domain/health.ts";
import { requireScopes, type Token } from "../domain/token.ts";
import { expectedBytes, readBody, receive } from "./input/body.ts";
import type { UncheckedCall } from "./input/call.ts";
import { requestIdOf, requireHost } from "./input/headers.ts";
import type { ReserveWrite } from "./limits/memory.ts";
import type { createRateLimiter } from "./limits/rate-limit.ts";
import type { ResponseBody } from "./output/bodies.ts";
import { errorBody, type LogServerError } from "./output/error-responses.ts";
import { respond } from "./respond.ts";
import type { Route, Services } from "./routes/route.ts";
import type { Unmatched } from "./unmatched.ts";

function isWrite(method: string): boolean {
  return method !== "GET" && method !== "HEAD";
}

const keys = ["Idempotency-Key"];
const preconditions = ["If-Match", "If-None-Match"];

/** A client that sends a field that protects it, with a method that ignores it, believes that it is protected. */
function requireFieldsOfMethod({ method, headers }: Request): void {
  // PATCH, PUT and DELETE use both.
  if (isWrite(method) && method !== "POST") return;
  // Almost all of the others, as fast as possible.
  if (!isWrite(method) && !headers.has("idempotency-key")) return;
  const [useless, allowed] = isWrite(method) ? [preconditions, keys] : [keys, preconditions];
  const found = useless.find((name) => headers.has(name));
  if (found) failField(found, "not_allowed", `is not allowed with ${method}`, { allowed });
}

/** The status of a request whose client has disconnected, as in the log of nginx. It gets no response. */
const DISCONNECTED = 499;

export interface Pipeline extends Services {
  readonly unmatched: Unmatched;
  readonly requireWithinRate: ReturnType<typeof createRateLimiter>;
  readonly reserveWrite: ReserveWrite;
  readonly logServerError: LogServerError;
}

function identify(pipeline: Pipeline, call: UncheckedCall): MaybePromise<Token> {
  const { method, headers } = call.request;
  const authorization = headers.get("authorization") ?? "";
  const token = pipeline.authenticate(authorization);
  // Bun drops the body of a GET.
  if (!(token instanceof Promise) || !isWrite(method)) return token;
  // Its error must not be unhandled if there is no room for the body.
  token.catch(() => {});
  call.incoming = receive(pipeline.reserveWrite, call.request, pipeline.clientOf(authorization));
  return token;
}

function admit(call: UncheckedCall, token: Token | null): void {
  const { headers } = call.request;
  call.token = token;
  // Bun sends the interim response only for `100-continue` in lower case: otherwise, clients would wait in vain.
  if ((headers.get("expect") ?? "100-continue") !== "100-continue") fail("expectation_failed");
  requireHost(headers.get("host"));
}

async function handleUnmatched(pipeline: Pipeline, call: UncheckedCall): Promise<ResponseBody> {
  const { unmatched } = pipeline;
  admit(call, unmatched.needsToken(call) ? await identify(pipeline, call) : null);
  return unmatched.handle(call);
}

function handleRoute(
  pipeline: Pipeline,
  call: UncheckedCall,
  route: Route,
): MaybePromise<ResponseBody> {
  // Before its token is looked up.
  if (pipeline.config.standby && route.definition.scopes) requireRecent(pipeline.store);
  const token = route.definition.public ? null : identify(pipeline, call);
  // Not `andThen`: JavaScriptCore could not inline a call that all routes share.
  return token instanceof Promise
    ? token.then((found) => authorize(pipeline, call, route, found))
    : authorize(pipeline, call, route, token);
}

function authorize(
  pipeline: Pipeline,
  call: UncheckedCall,
  route: Route,
  token: Token | null,
): MaybePromise<ResponseBody> {
  admit(call, token);
  if (token !== null) {
    if (route.definition.scopes) requireScopes(token, route.definition.scopes);
    pipeline.requireWithinRate(token.hash);
  }
  return isWrite(call.request.method) ? write(pipeline, call, route) : read(pipeline, call, route);
}

/** @see YieldToClients. The promise rejects if the client has disconnected. */
function yieldToOthers(pipeline: Pipeline, call: UncheckedCall): Promise<void> | null {
  const turn = pipeline.yieldToClients(call.token?.hash ?? null);
  if (turn === null) return null;
  return turn.then(() => {
    // A client could keep the server busy with requests whose responses it does not wait for.
    if (call.request.signal.aborted) fail("unavailable", "the client has disconnected");
  });
}

function read(pipeline: Pipeline, call: UncheckedCall, route: Route): MaybePromise<ResponseBody> {
  const turn = yieldToOthers(pipeline, call);
  const body =
    turn === null
      ? callHandler(pipeline, call, route)
      : turn.then(() => callHandler(pipeline, call, route));
  if (!pipeline.config.standby || !route.definition.scopes) return body;
  return andThen(body, (made) => {
    // That of what was read (RFC 9111 §5.1).
    const seconds = requireRecent(pipeline.store);
    if (seconds !== null) call.head.headers["age"] = String(Math.ceil(seconds));
    return made;
  });
}

async function write(pipeline: Pipeline, call: UncheckedCall, route: Route): Promise<ResponseBody> {
  const { request, token } = call;
  if (pipeline.config.readOnly) fail("unavailable", "the server is read-only at the moment");
  if (pipeline.config.standby && pipeline.store.secondsBehind() !== null) failNotPrimary();
  const client = token?.hash ?? null;
  if (call.incoming === null) call.incoming = receive(pipeline.reserveWrite, request, client);
  else call.incoming.assign(client);
  await yieldToOthers(pipeline, call);
  if (route.definition.body) call.body = await readBody(request, call.incoming.bytes);
  return await callHandler(pipeline, call, route);
}

function callHandler(pipeline: Pipeline, call: UncheckedCall, route: Route) {
  const { params, query, body } = route.definition;
  requireFieldsOfMethod(call.request);
  call.params = params?.parse(call.params);
  call.query = query.parse(call.request.url);
  call.body = body?.parse(call.body);
  return route.handler(call, pipeline);
}

function reject(pipeline: Pipeline, call: UncheckedCall, error: unknown): Response {
  const { request, head } = call;
  const body = errorBody(head, error, request.method);
  if (error instanceof AppError && (head.status === 401 || error.cause === NOT_PRIMARY))
    call.denial = error;
  // Neither a failure of the server nor a reason for an alert.
  if (error instanceof AppError && request.signal.aborted) head.status = DISCONNECTED;
  else pipeline.logServerError(error, call);
  return respond(pipeline, call, body);
}

/** With a longer body, a rejection does not wait: Bun receives it meanwhile, and without a token bodies could fill the memory. */
const MAX_WAITING_BODY_BYTES = 2 ** 10;

/** Rejects a request that no check has delayed yet: a connection can pipeline thousands of them without a token. */
function rejectInTurn(
  pipeline: Pipeline,
  call: UncheckedCall,
  error: unknown,
): MaybePromise<Response> {
  const { request, token } = call;
  const isLong = expectedBytes(request.headers) > MAX_WAITING_BODY_BYTES;
  const turn = isLong ? null : pipeline.yieldToClients(token?.hash ?? null);
  return turn === null
    ? reject(pipeline, call, error)
    : turn.then(() => reject(pipeline, call, error));
}

function finish(pipeline: Pipeline, call: UncheckedCall, body: ResponseBody): Response {
  const { request, token } = call;
  if (body === null || token === null || request.method !== "GET")
    return respond(pipeline, call, body);
  return respond(pipeline, call, pipeline.responseMemory.reserve(request, token.hash, body));
}

async function finishLater(
  pipeline: Pipeline,
  call: UncheckedCall,
  body: Promise<ResponseBody>,
): Promise<Response> {
  const { pending } = pipeline.connections;
  pending.add(call.request);
  try {
    return finish(pipeline, call, await body);
  } catch (error) {
    return reject(pipeline, call, error);
  } finally {
    pending.delete(call.request);
    call.incoming?.release();
  }
}

/** The first error of the checks is the response. @param route `null` if none matches */
export function handleRequest(
  pipeline: Pipeline,
  route: Route | null,
  path: string,
  request: Request,
  params: unknown,
): MaybePromise<Response> {
  const call: UncheckedCall = {
    request,
    requestId: requestIdOf(request.headers),
    startedMs: performance.now(),
    route: path,
    head: { status: 200, headers: {} },
    token: null,
    params,
    query: undefined,
    incoming: null,
    body: undefined,
    recordId: undefined,
    waitedMs: undefined,
    denial: null,
  };
  try {
    const body =
      route === null ? handleUnmatched(pipeline, call) : handleRoute(pipeline, call, route);
    return body instanceof Promise
      ? finishLater(pipeline, call, body)
      : finish(pipeline, call, body);
  } catch (error) {
    return rejectInTurn(pipeline, call, error);
  }
}
