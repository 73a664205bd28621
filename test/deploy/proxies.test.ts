// deploy/Caddyfile, deploy/nginx.conf and deploy/haproxy.cfg, with the real proxies if they are installed.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { IDLE_TIMEOUT_S } from "../../src/http/connections/connections.ts";
import { startServer, type TestServer } from "../http/server.ts";
import { freePort } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Running, runProgram, startProgram } from "../support/program.ts";
import { deploy } from "./yaml.ts";

const [caddyfile = "", nginxConf = "", haproxyCfg = ""] = await Promise.all(
  ["Caddyfile", "nginx.conf", "haproxy.cfg"].map((name) => Bun.file(`${deploy}/${name}`).text()),
);

const certificate = `${import.meta.dir}/../fixtures/localhost.crt`;
const key = `${import.meta.dir}/../fixtures/localhost.key`;
const tls = { ca: await Bun.file(certificate).text() };

/** @returns the text with each replacement made, all of which must be possible */
function adapt(text: string, replacements: Readonly<Record<string, string>>): string {
  let adapted = text;
  for (const [from, to] of Object.entries(replacements)) {
    expect(adapted).toContain(from);
    adapted = adapted.replaceAll(from, to);
  }
  return adapted;
}

/** @returns the path of a program, `null` without one; Debian has some in a directory that is not on every PATH */
const findProgram = (name: string): string | null =>
  Bun.which(name, { PATH: `${Bun.env["PATH"]}:/usr/sbin` });

function start(program: string | null, args: readonly string[], home: string): Running {
  const env = { HOME: home, PATH: Bun.env["PATH"] };
  return startProgram([program ?? "", ...args], { env, cwd: home });
}

interface Place {
  readonly port: number;
  /** Without TLS. */
  readonly plainPort: number;
  /** Address of the server: a port, or `unix:` and a path. */
  readonly upstream: string;
  readonly directory: string;
}

function configureCaddy({ port, plainPort, upstream }: Place): string {
  const site = adapt(caddyfile, {
    "\nhttp://api.example.com {": `\nhttp://localhost:${plainPort} {\n\tbind 127.0.0.1`,
    "\napi.example.com {": `\nhttps://localhost:${port} {\n\tbind 127.0.0.1\n\ttls ${certificate} ${key}`,
    "127.0.0.1:3000": upstream.replace("unix:", "unix/"),
  });
  return `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${site}`;
}

function configureNginx({ port, directory, upstream }: Place): string {
  const site = adapt(nginxConf, {
    "listen 443 ssl;": `listen 127.0.0.1:${port} ssl;`,
    "listen [::]:443 ssl;": "",
    "/etc/letsencrypt/live/api.example.com/fullchain.pem": certificate,
    "/etc/letsencrypt/live/api.example.com/privkey.pem": key,
    // Twice, because nginx takes a single server for available whatever it does.
    "server 127.0.0.1:3000 max_fails=0;": `server ${upstream} max_fails=0;`.repeat(2),
    "api.example.com": "localhost",
  });
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${directory}/${name};`,
  );
  // An operator may have turned compression on for other sites.
  const http = `gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; ${paths.join(" ")}`;
  // As root, because the workers of another user cannot write to the directory of the test.
  return `daemon off; user root; pid ${directory}/pid; error_log stderr;\nevents {}\nhttp { ${http}\n${site}}\n`;
}

const proxies = {
  caddy: {
    configure: configureCaddy,
    args: (file: string) => ["run", "--adapter", "caddyfile", "--config", file],
  },
  nginx: {
    configure: configureNginx,
    args: (file: string) => ["-e", "stderr", "-c", file],
  },
} as const;

test("Caddy and nginx close idle connections before the server does", () => {
  for (const config of [caddyfile, nginxConf]) {
    const [, seconds] = /\bkeepalive(?:_timeout)? (\d+)s/.exec(config) ?? [];
    expect(Number(seconds)).toBeWithin(1, IDLE_TIMEOUT_S);
  }
});

for (const [name, listensOn] of [
  ["caddy", "port"],
  ["nginx", "port"],
  ["caddy", "socket"],
  ["nginx", "socket"],
] as const) {
  const { configure, args } = proxies[name];
  const program = findProgram(name);

  describe.skipIf(program === null)(`${name}, ${listensOn}`, () => {
    const directory = makeDirectory();
    const [port, plainPort] = [freePort(), freePort()];
    const url = `https://localhost:${port}`;
    let server: TestServer;
    let proxy: Running;

    beforeAll(async () => {
      const host = listensOn === "socket" ? { HOST: directory.at("socket") } : {};
      server = await startServer({ TRUSTED_PROXIES: "1", ...host });
      const upstream = server.url.replace("http://", "");
      const place = { port, plainPort, upstream, directory: directory.path };
      await Bun.write(directory.at("config"), configure(place));
      proxy = start(program, args(directory.at("config")), directory.path);
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
    const json = { "content-type": "application/json" };

    test("a client that accepts compression can change the record that it has read, with the paths, ids and limits of the server", async () => {
      const email = `${name}@example.com`;
      const created = await call("POST", "/users", json, JSON.stringify({ email }));
      expect(created.status).toBe(201);
      const path = created.headers.get("location")?.slice(7) ?? "";
      const read = await call("GET", path, { "accept-encoding": "gzip, zstd, br" });
      const etag = read.headers.get("etag") ?? "";
      expect(etag).toBe('"1"');
      const changed = await call("PATCH", path, { ...json, "if-match": etag }, '{"name":"Ann"}');
      expect(changed.status).toBe(200);
      const found = await call("GET", `/users?email=${email}`, {});
      expect(((await found.json()) as any).meta.total).toBe(1);
      expect(proxy.output()).not.toContain(email);
      const response = await call("GET", "/users%2F1", { "x-request-id": "mine" });
      expect([response.status, response.headers.get("x-request-id")]).toEqual([404, "mine"]);
      const statuses = [2 ** 16, 2 ** 21].map(
        async (bytes) => (await call("POST", "/users", json, " ".repeat(bytes))).status,
      );
      expect(await Promise.all(statuses)).toEqual([400, 413]);
    });

    test("the log has the address of a client that is rejected, not what it claims", async () => {
      const headers = { authorization: "", "x-forwarded-for": "203.0.113.1" };
      expect((await call("GET", "/users", headers)).status).toBe(401);
      while (!server.output.includes('"status":401')) await Bun.sleep(5);
      expect(server.output).toMatch(/"status":401.*"client":"127\.0\.0\.1"/);
      expect(server.output).not.toContain("203.0.113.1");
    });

    // nginx.conf has no server without TLS.
    test.if(name === "caddy")("a request without TLS is rejected, not redirected", async () => {
      const plainUrl = `http://localhost:${plainPort}/api/v1/health`;
      const { status, headers } = await fetch(plainUrl, { redirect: "manual" });
      expect([status, headers.get("location")]).toEqual([403, null]);
    });

    const curl = Bun.which("curl");
    // `fetch` sends no such method.
    test.skipIf(curl === null)(
      "a request with an unknown method has no effect on others",
      async () => {
        const sent = ["--http1.1", "--cacert", certificate, "-X", "FOO", `${url}/api/v1/users`];
        const printed = ["-s", "-o", "/dev/null", "-w", "%{http_code}"];
        for (let time = 0; time < 2; time += 1) {
          const { stdout } = await runProgram([curl ?? "", ...printed, ...sent]);
          expect(stdout).toBe(name === "nginx" ? "405" : "502");
        }
        expect((await call("GET", "/users", {})).status).toBe(200);
      },
    );
  });
}

function startStub(name: string) {
  const stub = { role: "standby" as "primary" | "standby" | "gone" };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch({ url }) {
      const isHealthy = stub.role === "primary" || !url.endsWith("?primary");
      return new Response(name, { status: stub.role !== "gone" && isHealthy ? 200 : 503 });
    },
  });
  const address = `127.0.0.1:${server.port}`;
  return Object.assign(stub, { address, [Symbol.asyncDispose]: () => server.stop(true) });
}

function configureHaproxyPair(port: number, one: string, two: string): string {
  const bound = haproxyCfg.replace(":3080", `127.0.0.1:${port}`);
  return bound.replaceAll('"$ONE"', one).replaceAll('"$TWO"', two);
}

function configureCaddyPair(port: number, one: string, two: string): string {
  return `{\n\tadmin off\n}\n${caddyfile.split("\nhttp:")[0]}`
    .replace("\napi.example.com {", `\nhttp://127.0.0.1:${port} {`)
    .replace("# health_uri /api/v1/health", "health_uri /api/v1/health?primary")
    .replace("# health_interval", "health_interval")
    .replace("reverse_proxy 127.0.0.1:3000", `reverse_proxy ${one} ${two}`);
}

// Two servers with STANDBY.
for (const [name, args, configure] of [
  ["haproxy", (file: string) => ["-f", file], configureHaproxyPair],
  ["caddy", proxies.caddy.args, configureCaddyPair],
] as const) {
  const program = findProgram(name);
  test.skipIf(program === null)(
    `${name} sends all requests to the server that writes`,
    async () => {
      await using one = startStub("one");
      await using two = startStub("two");
      using directory = makeDirectory();
      const port = freePort();
      await Bun.write(directory.at("config"), configure(port, one.address, two.address));
      const proxy = start(program, args(directory.at("config")), directory.path);
      async function untilAll(expected: string): Promise<void> {
        for (let count = 0; count < 20; ) {
          const response = await fetch(`http://127.0.0.1:${port}/api/v1/users`).catch(() => null);
          count = (await response?.text()) === expected ? count + 1 : 0;
          if (count === 0) await Bun.sleep(20);
        }
      }
      try {
        one.role = "primary";
        await untilAll("one");
        one.role = "gone";
        // HAProxy continues with reads.
        if (name === "haproxy") await untilAll("two");
        two.role = "primary";
        await untilAll("two");
        one.role = "standby";
        await untilAll("two");
      } finally {
        proxy.kill("SIGTERM");
        await proxy.ended;
      }
    },
  );
}
