import { expect, test } from "bun:test";
import { expectUnauthorised, newUser } from "./make.ts";
import { sendRaw } from "./raw.ts";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();
const user = await newUser(server);

const send = (method: string, target: string, hosts: readonly string[], token: string | null) =>
  sendRaw(server, method, target, { hosts, token });

const problem = "must be one valid host name";
const invalidHost = {
  data: null,
  error: `Validation failed: Host ${problem}`,
  meta: { code: "validation_failed", problems: [{ field: "Host", code: "format", problem }] },
};

const valid = [
  ...["localhost", "API.Example.com", "api.example.com.", "a_b.example", "_a.example"],
  ...["xn--bcher-kva.example", "3com.example", "127.0.0.1:3000", "example.com:", "example.com:443"],
  ...["[::1]", "[::1]:3000", "[2001:DB8::8a2e:370:7334]", "[::ffff:192.0.2.1]:80"],
];

test.each(valid)("Host is accepted when it is %j", async (host) => {
  for (const path of ["/users", `/users/${user.id}`, "/health"]) {
    const { status } = await send("GET", `/api/v1${path}`, [host], server.writeToken);
    expect(status, path).toEqual(200);
  }
});

const invalid = [
  ...["", " ", "a b", "a\tb", "a,b", "user@example.com", "example.com/api", "http://example.com"],
  ...["a?b", "a#b", "a\\b", "a..b", ".a", "ä.example", "\xe9", "a:b", "a:-1", "a:65536", "a:80:80"],
  ...[":80", "::1", "[::1", "[]", "[a.example]", "[1:2]", "[::1]x", "[::1]:b"],
  // The target of a public path.
  ...["a?/api/v1/health", "x/api/v1/health"],
].map((host) => [host]);
const twice = ["a a", "a b", "a ", " a"].map((hosts) => hosts.split(" "));

test.each([...invalid, ...twice].map((hosts) => [hosts]))(
  "an invalid Host returns 400 with a token and on public paths, otherwise 401, when it is %j",
  async (hosts) => {
    const health = await send("GET", "/api/v1/health", hosts, null);
    const list = await send("GET", "/api/v1/users", hosts, server.readToken);
    const record = await send("GET", `/api/v1/users/${user.id}`, hosts, server.readToken);
    for (const { status, text } of [health, list, record]) {
      expect([status, JSON.parse(text)]).toEqual([400, invalidHost]);
    }
    expectUnauthorised(await send("GET", "/api/v1/users", hosts, null), ["Bearer"]);
  },
);

test("Host may be missing when the request is HTTP/1.0", async () => {
  const ask = (version: string) => server.raw(`GET /api/v1/health HTTP/${version}\r\n\r\n`);
  expect(await ask("1.0")).toStartWith("HTTP/1.1 200");
  expect(await ask("1.1")).toStartWith("HTTP/1.1 400");
});
