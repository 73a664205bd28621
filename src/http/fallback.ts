import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { Authentication } from "./auth.ts";
import type { Cors } from "./cors.ts";
import { docs_path, errorEnvelope, type ResponseHead } from "./envelope.ts";
import { error_responses } from "./errors.ts";
import { publicHost } from "./host.ts";
import { pathOf } from "./params.ts";

interface Route {
  readonly method: string;
  readonly path: string;
}

interface PathMethods {
  readonly pattern: RegExp;
  /** As in `/api/v1/users/:id`. */
  readonly path: string;
  /** The value of `Allow`. */
  readonly allow: string;
}

/** @returns a look-up of the route that a path matches; `null` for an unknown path */
function createPathLookup(routes: readonly Route[]): (path: string) => PathMethods | null {
  const methods_by_path = new Map<string, string[]>();
  for (const { method, path } of routes) {
    const methods = methods_by_path.get(path) ?? [];
    methods.push(...(method === "GET" ? ["GET", "HEAD"] : [method]));
    methods_by_path.set(path, methods);
  }
  const known_paths = [...methods_by_path].map(([path, methods]) => {
    const source = path.replaceAll(".", "\\.").replace(/:[^/]+/g, "[^/]+");
    return { pattern: new RegExp(`^${source}$`), path, allow: methods.join(", ") };
  });
  return (path) => known_paths.find(({ pattern }) => pattern.test(path)) ?? null;
}

/** Corrects the usual mistakes: no `/api/v1`, a trailing slash, `user` or `order` in the singular. */
function correctPath(path: string): string {
  const trimmed = path.endsWith("/") ? path.slice(0, -1) : path;
  return trimmed
    .replace(/^\/(?:api\/)?(?:v1\/)?/, "/api/v1/")
    .replace(/^\/api\/v1\/(user|order)(?=\/|$)/, "/api/v1/$1s");
}

/** Paths outside the API that people try first. GET redirects to the reference, without a token. */
const redirects: readonly Route[] = [
  { method: "GET", path: "/" },
  { method: "GET", path: `${docs_path}/` },
];

/** The methods that Bun's router distinguishes. All others reach the `/*` route. */
const METHODS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/**
 * Handles requests that match no route: 405 for another method of a known path, otherwise 404. Both need a
 * token, except other methods of a public path.
 * @param public_routes the routes that need no token
 * @param routes all routes of the app, including the public ones
 */
export function fallback(
  authentication: Authentication,
  cors: Cors | null,
  public_routes: readonly Route[],
  routes: readonly Route[],
) {
  const findPath = createPathLookup([...redirects, ...routes]);

  function handleUnmatched({ request, set }: { request: Request; set: ResponseHead }) {
    const preflight = cors?.preflight(request);
    if (preflight) {
      set.status = 204;
      set.headers = { ...preflight };
      return null;
    }
    const path = pathOf(request.url);
    const known = findPath(path);
    if (known === null) {
      // The route's own path, since an id in the request may be of any length.
      const nearest = findPath(correctPath(path));
      fail("not_found", nearest ? `not found: did you mean ${nearest.path}?` : "not found");
    }
    const { status, code } = error_responses.method_not_allowed;
    set.status = status;
    set.headers["allow"] = known.allow;
    return errorEnvelope(code, `method ${request.method} is not allowed here, use ${known.allow}`);
  }

  const public_methods = new Elysia().use(publicHost());
  for (const { method, path } of public_routes) {
    for (const other of METHODS) {
      if (other !== method)
        public_methods.route(other, path, ({ request, set }) => handleUnmatched({ request, set }));
    }
  }
  for (const { path } of redirects) {
    // Not `get`: Elysia drops the slash at the end of a native route, and so would replace the page itself.
    public_methods.all(path, ({ request, set }) => {
      const { method } = request;
      if (method !== "GET" && method !== "HEAD") return handleUnmatched({ request, set });
      set.status = 302;
      set.headers["location"] = docs_path;
      return null;
    });
  }
  return new Elysia({ name: "fallback" })
    .use(public_methods)
    .use(authentication)
    .all("/*", ({ request, set }) => handleUnmatched({ request, set }));
}
