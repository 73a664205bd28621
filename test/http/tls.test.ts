import { expect, test } from "bun:test";
import { startSharedServer } from "./server.ts";

const directory = `${import.meta.dir}/../fixtures`;
/** A self-signed certificate for localhost and 127.0.0.1. */
const TLS_CERT = `${directory}/localhost.crt`;
const TLS_KEY = `${directory}/localhost.key`;

const server = await startSharedServer({ TLS_CERT, TLS_KEY });

const tls = { ca: await Bun.file(TLS_CERT).text() };

test("serve uses TLS when it has a certificate and its key", async () => {
  expect(server.url).toStartWith("https://");
  const health = await fetch(`${server.url}/api/v1/health`, { tls });
  expect([health.status, await health.json()]).toEqual([
    200,
    { data: { status: "ok" }, error: null },
  ]);

  const authorization = `Bearer ${server.writeToken}`;
  const options = { method: "POST", headers: { authorization }, tls };
  const created = await fetch(`${server.url}/api/v1/users`, {
    ...options,
    body: new TextEncoder().encode('{"email":"tls@example.com"}'),
  });
  expect(created.status).toBe(201);
});

test.each(["/users", "/nope", "/users/1", "/health/x"])(
  "%s returns 401 over TLS when there is no token",
  async (path) => {
    for (const host of ["localhost", "a", "a.b.c.d.example"]) {
      const response = await fetch(`${server.url}/api/v1${path}`, { headers: { host }, tls });
      expect([response.status, await response.text()]).toEqual([401, "unauthorised"]);
    }
  },
);

test("an unknown path returns 404 over TLS when there is a token", async () => {
  const headers = { authorization: `Bearer ${server.writeToken}` };
  const ask = (method: string, path: string) =>
    fetch(`${server.url}/api/v1${path}`, { method, headers, tls });
  expect((await ask("GET", "/nope")).status).toBe(404);
  const other = await ask("DELETE", "/orders");
  expect([other.status, other.headers.get("allow")]).toEqual([405, "GET, HEAD, POST"]);
});

test("plain HTTP gets no response when the server uses TLS", async () => {
  const plain = server.url.replace("https:", "http:");
  const isPlain = await fetch(`${plain}/api/v1/health`).then(
    ({ ok }) => ok,
    () => false,
  );
  expect(isPlain).toBe(false);
});
