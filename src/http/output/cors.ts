/** CORS: which origins may call the API from a browser. @see https://fetch.spec.whatwg.org/#http-cors-protocol */

const EXPOSED_HEADERS =
  "Age, ETag, Link, Location, Retry-After, X-Request-Id, Idempotent-Replayed, Allow, Accept-Patch, WWW-Authenticate";
const ALLOWED_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE";
/** Chromium limits it to two hours. */
const PREFLIGHT_AGE_S = 7200;

export type Cors = NonNullable<ReturnType<typeof createCors>>;

export function createCors(origins: readonly string[] | null) {
  if (origins === null) return null;
  const allowsAny = origins.includes("*");
  const allows = (origin: string | null) =>
    origin !== null && (allowsAny || origins.includes(origin));
  return {
    headers(origin: string | null): Readonly<Record<string, string>> {
      if (!allows(origin)) return { vary: "Origin" };
      return {
        vary: "Origin",
        "access-control-allow-origin": origin ?? "",
        "access-control-expose-headers": EXPOSED_HEADERS,
      };
    },
    /** @returns the headers of the response to a preflight; `null` if the request is not an allowed preflight */
    preflight({ method, headers }: Request): Readonly<Record<string, string>> | null {
      if (method !== "OPTIONS" || !allows(headers.get("origin"))) return null;
      if (!headers.has("access-control-request-method")) return null;
      // Those that the page asks for: tracing and other libraries add their own. They give no access without a token.
      const asked = headers.get("access-control-request-headers");
      return {
        "access-control-allow-methods": ALLOWED_METHODS,
        ...(asked !== null && { "access-control-allow-headers": asked }),
        "access-control-max-age": String(PREFLIGHT_AGE_S),
      };
    },
  };
}
