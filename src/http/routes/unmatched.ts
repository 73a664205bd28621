/** Requests that match no route: 405, 404, redirects to the reference, and CORS preflights. */
import { AppError, fail } from "../../base/error.ts";
import { UNKNOWN_ROUTE } from "../../base/log.ts";
import type { UncheckedCall } from "../input/call.ts";
import type { RouteEntry } from "../openapi/detail.ts";
import type { Cors } from "../output/cors.ts";
import { docsPath, errorBody } from "../output/error-responses.ts";

/** `new URL` throws if `Host` is invalid. */
function pathOf(url: string): string {
  return /^(?:https?:\/\/[^/]*)?([^?]*)/.exec(url)?.[1] ?? "";
}

/** Paths outside the API that people try first. GET redirects to the reference, without a token. */
const redirects: readonly string[] = ["/", `${docsPath}/`];

export function createUnmatched(cors: Cors | null, routes: readonly RouteEntry[]) {
  const all = [...redirects.map((path) => ({ method: "GET", path })), ...routes];
  const knownPaths = [...Map.groupBy(all, ({ path }) => path)].map(([path, routesOfPath]) => {
    const methods = routesOfPath.flatMap(({ method }) =>
      method === "GET" ? ["GET", "HEAD"] : method,
    );
    const source = path.replaceAll(".", "\\.").replace(/:[^/]+/g, "[^/]+");
    return { pattern: new RegExp(`^${source}$`), allow: methods.join(", ") };
  });
  const publicPaths = new Set([
    ...redirects,
    ...routes.filter(({ route }) => route.public).map(({ path }) => path),
  ]);

  return {
    routeOf({ url }: Request): string {
      const path = pathOf(url);
      return publicPaths.has(path) ? path : UNKNOWN_ROUTE;
    },
    /** @returns whether the response needs a token: no preflight, no redirect, no other method of a public path */
    needsToken({ request, route }: UncheckedCall): boolean {
      return route === UNKNOWN_ROUTE && !cors?.preflight(request);
    },
    handle({ request, head }: UncheckedCall): string | null {
      const preflight = cors?.preflight(request);
      if (preflight) {
        head.status = 204;
        head.headers = { ...preflight };
        return null;
      }
      const { method } = request;
      const path = pathOf(request.url);
      const known = knownPaths.find(({ pattern }) => pattern.test(path));
      if (known === undefined) fail("not_found", "not found");
      if (redirects.includes(path) && (method === "GET" || method === "HEAD")) {
        head.status = 302;
        head.headers["location"] = docsPath;
        return null;
      }
      const message = `method ${method} is not allowed here, use ${known.allow}`;
      const body = errorBody(head, new AppError("method_not_allowed", message), method);
      head.headers["allow"] = known.allow;
      return body;
    },
  };
}
