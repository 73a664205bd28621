// Two servers with STANDBY behind deploy/haproxy.cfg and deploy/Caddyfile, with the real proxies if they are installed.
import { test } from "bun:test";
import { freePort } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { startProgram } from "../support/program.ts";
import { configureHaproxy, findProgram } from "./proxies.ts";
import { deploy } from "./yaml.ts";

const caddyfile = await Bun.file(`${deploy}/Caddyfile`).text();

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

function configureCaddy(port: number, one: string, two: string): string {
  return `{\n\tadmin off\n}\n${caddyfile.split("\nhttp:")[0]}`
    .replace("\napi.example.com {", `\nhttp://127.0.0.1:${port} {`)
    .replace("# health_uri /api/v1/health", "health_uri /api/v1/health?primary")
    .replace("# health_interval", "health_interval")
    .replace("reverse_proxy 127.0.0.1:3000", `reverse_proxy ${one} ${two}`);
}

for (const [name, file, args, configure] of [
  ["haproxy", "haproxy.cfg", ["-f"], configureHaproxy],
  ["caddy", "Caddyfile", ["run", "--config"], configureCaddy],
] as const) {
  const program = findProgram(name) ?? "";
  test.skipIf(program === "")(`${name} sends all requests to the server that writes`, async () => {
    await using one = startStub("one");
    await using two = startStub("two");
    using directory = makeDirectory();
    const path = directory.at(file);
    const port = await freePort();
    await Bun.write(path, configure(port, one.address, two.address));
    const proxy = startProgram([program, ...args, path], { env: { HOME: directory.path } });
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
  });
}
