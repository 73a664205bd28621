// deploy/Caddyfile and deploy/nginx.conf, with the real proxies if they are installed.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:tls";
import { IDLE_TIMEOUT_S } from "../../src/http/limits/connections.ts";
import { startServer, type TestServer } from "../http/server.ts";
import { freePort } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Running, startProgram } from "../support/program.ts";
import { adapt, certificate, configureNginx, findProgram, key, tls } from "./proxies.ts";
import { deploy } from "./yaml.ts";

const caddyfile = await Bun.file(`${deploy}/Caddyfile`).text();
const nginxConf = await Bun.file(`${deploy}/nginx.conf`).text();

interface Place {
  readonly port: number;
  /** Without TLS. */
  readonly plainPort: number;
  /** Address of the server: a port, or `unix:` and a path. */
  readonly upstream: string;
  readonly directory: string;
}

type Configure = (place: Place) => string;

function configureCaddy({ port, plainPort, upstream }: Place): string {
  const site = adapt(caddyfile, {
    "\nhttp://api.example.com {": `\nhttp://localhost:${plainPort} {\n\tbind 127.0.0.1`,
    "\napi.example.com {": `\nhttps://localhost:${port} {\n\tbind 127.0.0.1\n\ttls ${certificate} ${key}`,
    "127.0.0.1:3000": upstream.replace("unix:", "unix/"),
  });
  return `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${site}`;
}

type Proxy = ["caddy" | "nginx", string, Configure, (file: string) => string[]];

const caddy: Proxy = ["caddy", "Caddyfile", configureCaddy, (file) => ["run", "--config", file]];
const nginx: Proxy = [
  "nginx",
  "nginx.conf",
  // Twice, because nginx takes a single server for available whatever it does.
  ({ port, directory, upstream }) => configureNginx(port, directory, [upstream, upstream]),
  (file) => ["-e", "stderr", "-c", file],
];
const proxies: [listensOn: string, ...Proxy][] = ["port", "socket"].flatMap((listensOn) =>
  [caddy, nginx].map((proxy): [string, ...Proxy] => [listensOn, ...proxy]),
);

describe.each(proxies)("%s, %s", (listensOn, name, file, configure, args) => {
  const program = findProgram(name);

  test(`${file} closes idle connections before the server does`, () => {
    const text = name === "caddy" ? caddyfile : nginxConf;
    const [, seconds] = /\bkeepalive(?:_timeout)? (\d+)s/.exec(text) ?? [];
    expect(Number(seconds)).toBeWithin(1, IDLE_TIMEOUT_S);
  });

  describe.skipIf(program === null)(program === null ? "skipped: not installed" : "proxy", () => {
    const directory = makeDirectory();
    let url = "";
    let plainUrl = "";
    let server: TestServer;
    let proxy: Running;

    beforeAll(async () => {
      const host = listensOn === "socket" ? { HOST: directory.at("socket") } : {};
      server = await startServer({ TRUSTED_PROXIES: "1", ...host });
      const [port, plainPort] = [await freePort(), await freePort()];
      url = `https://localhost:${port}`;
      plainUrl = `http://localhost:${plainPort}`;
      const path = directory.at(file);
      const upstream = server.url.replace("http://", "");
      const place = { port, plainPort, upstream, directory: directory.path };
      await Bun.write(path, configure(place));
      const env = { HOME: directory.path, PATH: Bun.env["PATH"] };
      proxy = startProgram([program ?? "", ...args(path)], { env, cwd: directory.path });
      while ((await fetch(`${url}/api/v1/health`, { tls }).catch(() => null)) === null) {
        if (proxy.hasExited()) throw new Error(proxy.output());
        await Bun.sleep(20);
      }
    });
    afterAll(async () => {
      proxy?.kill("SIGTERM");
      await proxy?.ended;
      await server?.stop();
      directory[Symbol.dispose]();
    });

    function call(method: string, path: string, headers: Record<string, string>, body = "") {
      const all = { authorization: `Bearer ${server.writeToken}`, ...headers };
      const options = { method, headers: all, tls, ...(body !== "" && { body }) };
      return fetch(`${url}/api/v1${path}`, options);
    }

    test("a client that accepts compression can change the record that it has read", async () => {
      const json = { "content-type": "application/json" };
      const email = `${name}@example.com`;
      const created = await call("POST", "/users", json, JSON.stringify({ email }));
      expect(created.status).toBe(201);
      const read = await call("GET", created.headers.get("location")?.slice(7) ?? "", {
        "accept-encoding": "gzip, zstd, br",
      });
      const etag = read.headers.get("etag") ?? "";
      expect(etag).toBe('"1"');
      const { data } = (await read.json()) as any;
      const changed = await call(
        "PATCH",
        `/users/${data.id}`,
        { ...json, "if-match": etag },
        '{"name":"Ann"}',
      );
      expect(changed.status).toBe(200);
      const found = await call("GET", `/users?email=${email}`, {});
      expect(((await found.json()) as any).meta.total).toBe(1);
      expect(proxy.output()).not.toContain(email);
    });

    test("the log has the address of a client that is rejected, not what it claims", async () => {
      const headers = { authorization: "", "x-forwarded-for": "203.0.113.1" };
      expect((await call("GET", "/users", headers)).status).toBe(401);
      while (!server.output.includes('"status":401')) await Bun.sleep(5);
      expect(server.output).toMatch(/"status":401.*"client":"127\.0\.0\.1"/);
      expect(server.output).not.toContain("203.0.113.1");
    });

    // nginx.conf has no server without TLS.
    if (name === "caddy") {
      test("a request without TLS is rejected, not redirected", async () => {
        const response = await fetch(`${plainUrl}/api/v1/health`, { redirect: "manual" });
        expect([response.status, response.headers.get("location")]).toEqual([403, null]);
      });
    }

    /** `fetch` sends no such method. @returns the status line */
    function statusLine(method: string): Promise<string> {
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      const port = Number(new URL(url).port);
      const socket = connect({ port, host: "127.0.0.1", servername: "localhost", ...tls }, () =>
        socket.write(`${method} /api/v1/users HTTP/1.1\r\nHost: localhost\r\n\r\n`),
      );
      socket.on("data", (data) => {
        resolve(data.toString().split("\r\n", 1)[0] ?? "");
        socket.destroy();
      });
      socket.on("error", reject);
      return promise;
    }

    test("a request with an unknown method has no effect on others", async () => {
      const rejected = name === "nginx" ? "HTTP/1.1 405 Not Allowed" : "HTTP/1.1 502 Bad Gateway";
      for (let time = 0; time < 2; time += 1) expect(await statusLine("FOO")).toBe(rejected);
      expect((await call("GET", "/users", {})).status).toBe(200);
    });

    test("the request id, the encoded path and the limit of bodies are those of the server", async () => {
      const response = await call("GET", "/users%2F1", { "x-request-id": "mine" });
      expect([response.status, response.headers.get("x-request-id")]).toEqual([404, "mine"]);
      const json = { "content-type": "application/json" };
      const statuses = [2 ** 16, 2 ** 21].map(
        async (bytes) => (await call("POST", "/users", json, " ".repeat(bytes))).status,
      );
      expect(await Promise.all(statuses)).toEqual([400, 413]);
    });
  });
});
