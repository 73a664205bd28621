import { Elysia } from "elysia";
import { fail } from "../error.ts";
import type { Authentication } from "./auth.ts";
import type { Cors } from "./cors.ts";
import { errorEnvelope, type ResponseHead } from "./envelope.ts";
import { error_responses } from "./errors.ts";
import { requireHost } from "./host.ts";
import { pathOf } from "./params.ts";

interface Route {
  readonly method: string;
  readonly path: string;
}

/** `/api/v1/users/:id` → the methods it has, as `Allow` lists them. */
function allowedMethods(routes: readonly Route[]) {
  const methods_by_path = new Map<string, string[]>();
  for (const { method, path } of routes) {
    const methods = methods_by_path.get(path) ?? [];
    methods.push(...(method === "GET" ? ["GET", "HEAD"] : [method]));
    methods_by_path.set(path, methods);
  }
  const patterns = [...methods_by_path].map(([path, methods]) => ({
    pattern: new RegExp(`^${path.replace(/:[^/]+/g, "[^/]+")}$`),
    allow: methods.join(", "),
  }));
  return (path: string) => patterns.find(({ pattern }) => pattern.test(path))?.allow ?? null;
}

/** The methods that Bun's router tells apart; any other falls through to the guarded rest. */
const METHODS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/**
 * What no route takes: another method on a known path is 405, an unknown path 404, and both are 401
 * to a stranger, but for the methods of a public path.
 * @param public_routes those that ask for no token
 * @param routes all that stand before, the public ones among them
 */
export function fallback(
  authentication: Authentication,
  cors: Cors | null,
  public_routes: readonly Route[],
  routes: readonly Route[],
) {
  const allowed = allowedMethods(routes);

  function handleUnmatched({ request, set }: { request: Request; set: ResponseHead }) {
    requireHost(request.headers.get("host"));
    const preflight = cors?.preflight(request);
    if (preflight) {
      set.status = 204;
      set.headers = { ...preflight };
      return null;
    }
    const allow = allowed(pathOf(request.url));
    if (allow === null) fail("not_found", "not found");
    const { status, code } = error_responses.method_not_allowed;
    set.status = status;
    set.headers["allow"] = allow;
    return errorEnvelope(code, `method ${request.method} is not allowed here, use ${allow}`);
  }

  const app = new Elysia({ name: "fallback" });
  for (const { method, path } of public_routes) {
    for (const other of METHODS) {
      if (other !== method)
        app.route(other, path, ({ request, set }) => handleUnmatched({ request, set }));
    }
  }
  return app.use(authentication).all("/*", ({ request, set }) => handleUnmatched({ request, set }));
}
