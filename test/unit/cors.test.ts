import { expect, test } from "bun:test";
import { createCors } from "../../src/http/cors.ts";

const ours = "https://app.example.com";
const local = "http://localhost:8080";

function preflightOf(origin: string | null, method = "OPTIONS", asked: string | null = "PUT") {
  const headers = new Headers();
  if (origin !== null) headers.set("origin", origin);
  if (asked !== null) headers.set("access-control-request-method", asked);
  return new Request("http://localhost/api/v1/users/1", { method, headers });
}

const strangers = [
  null,
  "null",
  "",
  "*",
  "https://evil.example",
  "http://app.example.com",
  "https://app.example.com.evil.example",
  "https://app.example.com:8443",
  "https://app.example.com/",
  "https://APP.example.com",
  `${ours}, ${local}`,
];

test("`headers` allows the origin when it is configured", () => {
  const cors = createCors([ours, local]);
  for (const origin of [ours, local]) {
    const headers = cors?.headers(origin);
    expect(headers?.["access-control-allow-origin"]).toBe(origin);
    expect(headers?.["vary"]).toBe("Origin");
    const exposed = headers?.["access-control-expose-headers"]?.split(", ") ?? [];
    for (const name of [
      "ETag",
      "Link",
      "Location",
      "Retry-After",
      "X-Request-Id",
      "Allow",
      "Accept-Patch",
    ]) {
      expect(exposed).toContain(name);
    }
  }
});

test("`headers` names any origin when * is configured, and never allows credentials", () => {
  const cors = createCors(["*"]);
  for (const origin of [ours, "https://evil.example", "null"]) {
    expect(cors?.headers(origin)["access-control-allow-origin"]).toBe(origin);
    expect(cors?.headers(origin)).not.toHaveProperty("access-control-allow-credentials");
  }
  expect(cors?.headers(null)).toEqual({ vary: "Origin" });
});

test("`preflight` allows every method and header of the API when the origin is allowed", () => {
  const answer = createCors([ours])?.preflight(preflightOf(ours)) ?? {};
  const methods = answer["access-control-allow-methods"]?.split(", ").sort();
  expect(methods).toEqual(["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]);
  const headers = answer["access-control-allow-headers"]?.toLowerCase().split(", ").sort();
  expect(headers).toEqual([
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "x-request-id",
  ]);
  expect(Number(answer["access-control-max-age"])).toBeGreaterThan(0);
  expect(answer).not.toHaveProperty("access-control-allow-credentials");
});

test("`preflight` returns null when the request is not an allowed preflight", () => {
  const cors = createCors([ours]);
  for (const origin of strangers) expect(cors?.preflight(preflightOf(origin))).toBeNull();
  expect(cors?.preflight(preflightOf(ours, "OPTIONS", null))).toBeNull();
  for (const method of ["GET", "POST", "DELETE"]) {
    expect(cors?.preflight(preflightOf(ours, method))).toBeNull();
  }
});
