/** The checks before the handler of a route: docs/architecture.md has their order. Elysia's hooks would validate first. */
import { AppError, fail, failField } from "../base/error.ts";
import { andThen, type MaybePromise } from "../base/maybe-promise.ts";
import { failNotPrimary, NOT_PRIMARY, requireRecent } from "../domain/health.ts";
import { requireScopes, type Token } from "../domain/token.ts";
import { expectedBytes, readBody, receive } from "./input/body.ts";
import type { UncheckedCall } from "./input/call.ts";
import { requestIdOf } from "./input/headers.ts";
import type { ResponseBody } from "./output/bodies.ts";
import { errorBody } from "./output/error-responses.ts";
import { respond } from "./respond.ts";
import type { Route } from "./routes/route.ts";
import type { Services } from "./routes/services.ts";

type Handled = MaybePromise<ResponseBody>;

function isWrite(method: string): boolean {
  return method !== "GET" && method !== "HEAD";
}

const ofReads = { useless: ["Idempotency-Key"], allowed: ["If-Match", "If-None-Match"] };
const ofCreates = { useless: ofReads.allowed, allowed: ofReads.useless };

/** A client that sends a field that protects it, with a method that ignores it, believes that it is protected. */
function requireFieldsOfMethod({ method, headers }: Request): void {
  // PATCH, PUT and DELETE use both.
  if (isWrite(method) && method !== "POST") return;
  const { useless, allowed } = isWrite(method) ? ofCreates : ofReads;
  const found = useless.find((name) => headers.has(name));
  if (found) failField(found, "not_allowed", `is not allowed with ${method}`, { allowed });
}

/** The status of a request whose client has disconnected, as in the log of nginx. It gets no response. */
const DISCONNECTED = 499;

function identify(services: Services, call: UncheckedCall): MaybePromise<Token> {
  const { method, headers } = call.request;
  const authorization = headers.get("authorization") ?? "";
  const token = services.authenticate(authorization);
  // Bun drops the body of a GET.
  if (!(token instanceof Promise) || !isWrite(method)) return token;
  // Its error must not be unhandled if there is no room for the body.
  token.catch(() => {});
  call.incoming = receive(services.reserveWrite, call.request, services.clientOf(authorization));
  return token;
}

function admit({ requireHost }: Services, call: UncheckedCall, token: Token | null): void {
  const { headers } = call.request;
  call.token = token;
  // Bun sends the interim response only for `100-continue` in lower case: otherwise, clients would wait in vain.
  if ((headers.get("expect") ?? "100-continue") !== "100-continue") fail("expectation_failed");
  requireHost(headers.get("host"));
}

async function handleUnmatched(services: Services, call: UncheckedCall): Promise<ResponseBody> {
  const { unmatched } = services;
  admit(services, call, unmatched.needsToken(call) ? await identify(services, call) : null);
  return unmatched.handle(call);
}

function handleRoute(services: Services, call: UncheckedCall, route: Route): Handled {
  // Before its token is looked up.
  if (services.config.standby && route.scopes) requireRecent(services.store);
  const token = route.public ? null : identify(services, call);
  // Not `andThen`: JavaScriptCore could not inline a call that all routes share.
  return token instanceof Promise
    ? token.then((found) => authorize(services, call, route, found))
    : authorize(services, call, route, token);
}

function authorize(services: Services, call: UncheckedCall, route: Route, token: Token | null) {
  admit(services, call, token);
  if (token !== null) {
    if (route.scopes) requireScopes(token, route.scopes);
    services.requireWithinRate(token.hash);
  }
  return isWrite(call.request.method) ? write(services, call, route) : read(services, call, route);
}

/** @see createYieldToClients. The promise rejects if the client has disconnected. */
function yieldToOthers(services: Services, call: UncheckedCall): Promise<void> | null {
  const turn = services.yieldToClients(call.token?.hash ?? null);
  if (turn === null) return null;
  return turn.then(() => {
    // A client could keep the server busy with requests whose responses it does not wait for.
    if (call.request.signal.aborted) fail("unavailable", "the client has disconnected");
  });
}

function read(services: Services, call: UncheckedCall, route: Route): Handled {
  const body = andThen(yieldToOthers(services, call), () => callHandler(services, call, route));
  if (!services.config.standby || !route.scopes) return body;
  return andThen(body, (made) => {
    // That of what was read (RFC 9111 §5.1).
    const seconds = requireRecent(services.store);
    if (seconds !== null) call.head.headers["age"] = String(Math.ceil(seconds));
    return made;
  });
}

async function write(services: Services, call: UncheckedCall, route: Route): Promise<ResponseBody> {
  const { request, token } = call;
  if (services.config.readOnly) fail("unavailable", "the server is read-only at the moment");
  if (services.config.standby && services.store.secondsBehind() !== null) failNotPrimary();
  const client = token?.hash ?? null;
  if (call.incoming === undefined) call.incoming = receive(services.reserveWrite, request, client);
  else call.incoming.assign(client);
  const turn = yieldToOthers(services, call);
  if (turn !== null) await turn;
  if (route.body) call.body = await readBody(request, call.incoming.bytes);
  return await callHandler(services, call, route);
}

function callHandler(services: Services, call: UncheckedCall, route: Route) {
  const { params, query, body } = route;
  requireFieldsOfMethod(call.request);
  call.params = params?.parse(call.params);
  call.query = query.parse(call.request.url);
  call.body = body?.parse(call.body);
  return route.handler(call, services);
}

function reject(services: Services, call: UncheckedCall, error: unknown): Response {
  const { request, head } = call;
  const body = errorBody(head, error, request.method);
  if (error instanceof AppError && (head.status === 401 || error.cause === NOT_PRIMARY))
    call.denial = error;
  // Neither a failure of the server nor a reason for an alert.
  if (error instanceof AppError && request.signal.aborted) head.status = DISCONNECTED;
  else services.logServerError(error, call);
  return respond(services, call, body);
}

/** With a longer body, a rejection does not wait: Bun receives it meanwhile, and without a token bodies could fill the memory. */
const MAX_WAITING_BODY_BYTES = 2 ** 10;

/** Rejects a request that no check has delayed yet: a connection can pipeline thousands of them without a token. */
function rejectInTurn(services: Services, call: UncheckedCall, error: unknown) {
  const isLong = expectedBytes(call.request.headers) > MAX_WAITING_BODY_BYTES;
  const turn = isLong ? null : services.yieldToClients(call.token?.hash ?? null);
  return andThen(turn, () => reject(services, call, error));
}

function finish(services: Services, call: UncheckedCall, body: ResponseBody): Response {
  const { request, token } = call;
  if (body === null || token === null || request.method !== "GET")
    return respond(services, call, body);
  return respond(services, call, services.responseMemory.reserve(request, token.hash, body));
}

async function finishLater(services: Services, call: UncheckedCall, body: Promise<ResponseBody>) {
  const { pending } = services.connections;
  pending.add(call.request);
  try {
    return finish(services, call, await body);
  } catch (error) {
    return reject(services, call, error);
  } finally {
    pending.delete(call.request);
    call.incoming?.release();
  }
}

/** The first error of the checks is the response. @param route `null` if none matches */
export function handleRequest(
  services: Services,
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
    body: undefined,
    incoming: undefined,
    recordId: undefined,
    waitedMs: undefined,
    denial: undefined,
  };
  try {
    const body =
      route === null ? handleUnmatched(services, call) : handleRoute(services, call, route);
    return body instanceof Promise
      ? finishLater(services, call, body)
      : finish(services, call, body);
  } catch (error) {
    return rejectInTurn(services, call, error);
  }
}
