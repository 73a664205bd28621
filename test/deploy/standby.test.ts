// Two servers with STANDBY behind deploy/haproxy.cfg and deploy/Caddyfile, with the real proxies if they are installed.
import { test } from "bun:test";
import { freePort } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { startProgram } from "../support/program.ts";
import { deploy } from "./yaml.ts";

type Role = "primary" | "standby" | "gone";

/** A server as a proxy sees it. */
function startStub(name: string) {
  let role: Role = "standby";
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const isHealthy = role === "primary" || !request.url.endsWith("?primary");
      return new Response(name, { status: role === "gone" || !isHealthy ? 503 : 200 });
    },
  });
  return {
    address: `127.0.0.1:${server.port}`,
    become(next: Role) {
      role = next;
    },
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}

const proxies: Record<string, (file: string, port: number, upstreams: string[]) => string> = {
  haproxy: (file, port, [one = "", two = ""]) =>
    file.replace(":3080", `127.0.0.1:${port}`).replaceAll('"$ONE"', one).replaceAll('"$TWO"', two),
  caddy: (file, port, upstreams) =>
    `{\n\tadmin off\n}\n${file.split("\nhttp:")[0]}`
      .replace("\napi.example.com {", `\nhttp://127.0.0.1:${port} {`)
      .replace("# health_uri /api/v1/health", "health_uri /api/v1/health?primary")
      .replace("# health_interval", "health_interval")
      .replace("reverse_proxy 127.0.0.1:3000", `reverse_proxy ${upstreams.join(" ")}`),
};
const files: Record<string, [string, ...string[]]> = {
  haproxy: ["haproxy.cfg", "-f"],
  caddy: ["Caddyfile", "run", "--config"],
};

for (const [name, configure] of Object.entries(proxies)) {
  const program = Bun.which(name, { PATH: `${Bun.env["PATH"]}:/usr/sbin` });
  test.skipIf(program === null)(
    `${name} sends all requests to the server that writes`,
    async () => {
      await using one = startStub("one");
      await using two = startStub("two");
      using directory = makeDirectory();
      const [file, ...args] = files[name] ?? [""];
      const port = await freePort();
      const text = await Bun.file(`${deploy}/${file}`).text();
      await Bun.write(directory.at(file), configure(text, port, [one.address, two.address]));
      const env = { HOME: directory.path };
      const proxy = startProgram([program ?? "", ...args, directory.at(file)], { env });
      const ask = () =>
        fetch(`http://127.0.0.1:${port}/api/v1/users`).then(
          (response) => response.text(),
          () => "",
        );
      /** Expects that the proxy asks only this server from some time on. */
      async function expectAll(expected: string): Promise<void> {
        for (let count = 0; count < 20; ) {
          count = (await ask()) === expected ? count + 1 : 0;
          if (count === 0) await Bun.sleep(20);
        }
      }
      try {
        one.become("primary");
        await expectAll("one");
        one.become("gone");
        // HAProxy continues with reads.
        if (name === "haproxy") await expectAll("two");
        two.become("primary");
        await expectAll("two");
        one.become("standby");
        await expectAll("two");
      } finally {
        proxy.kill("SIGTERM");
        await proxy.ended;
      }
    },
  );
}
