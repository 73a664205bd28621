// Which requests of the program use a proxy.
import { expect, test } from "bun:test";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { openStorage } from "../../src/object-storage/open.ts";
import { startS3Server } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { binary, runProgram, startProgram } from "../support/program.ts";

const program =
  binary === "" ? [process.execPath, `${import.meta.dir}/../../src/main.ts`] : [binary];

/** A proxy that connects to no other machine. `seen` has the first line of each request. */
async function startProxy() {
  const seen: string[] = [];
  const server = createServer((incoming, response) => {
    const { method, url = "", headers } = incoming;
    const { host, port, pathname, search } = new URL(url);
    seen.push(`${method} ${host} ${headers["proxy-authorization"] ?? ""}`);
    const target = { host: "127.0.0.1", port, path: pathname + search, method, headers };
    const forwarded = request(target, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    incoming.pipe(forwarded);
  });
  server.on("connect", ({ url }, socket) => {
    seen.push(`CONNECT ${url}`);
    socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    /** Forgets them. */
    takeSeen: () => [...new Set(seen.splice(0))],
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Sets variables of this process, which Bun reads for each request, while the work is done. */
async function withProxy<Result>(
  variables: Readonly<Record<string, string>>,
  work: () => Promise<Result>,
): Promise<Result> {
  const names = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"].flatMap((name) => [
    name,
    name.toLowerCase(),
  ]);
  const before = names.map((name) => [name, Bun.env[name]] as const);
  const set = (entries: readonly (readonly [string, string | undefined])[]) => {
    for (const [name, value] of entries) {
      if (value === undefined) delete Bun.env[name];
      else Bun.env[name] = value;
    }
  };
  set(names.map((name) => [name, variables[name]]));
  try {
    return await work();
  } finally {
    set(before);
  }
}

test("requests to the storage use a proxy unless NO_PROXY has the host, its domain or all", async () => {
  await using proxy = await startProxy();
  await using s3 = await startS3Server();
  const address = `http://127.0.0.1:${proxy.port}`;
  const host = `s3.localhost:${s3.port}`;
  const storage = openStorage("s3://bucket", { ...s3.environment, S3_ENDPOINT: `http://${host}` });
  const seenWith = async (noProxy: string, variable = "HTTP_PROXY") => {
    const variables = { [variable]: address, NO_PROXY: noProxy };
    expect(await withProxy(variables, () => storage.list(""))).toEqual([]);
    return proxy.takeSeen();
  };
  for (const noProxy of ["", "a.b", "s3.localhost:1", "3.localhost", "s3"]) {
    expect([noProxy, await seenWith(noProxy)]).toEqual([noProxy, [`GET ${host} `]]);
  }
  for (const noProxy of ["*", host, "a.b, localhost", ".localhost", "S3.LOCALHOST"]) {
    expect([noProxy, await seenWith(noProxy)]).toEqual([noProxy, []]);
  }
  expect(await seenWith("", "HTTPS_PROXY")).toEqual([]);
});

test("a proxy that rejects connections is an error that names the variable, and sees no role", async () => {
  await using proxy = await startProxy();
  const address = `http://user:hidden@127.0.0.1:${proxy.port}`;
  const role = { AccessKeyId: "a", SecretAccessKey: "b", Token: "c" };
  const expires = new Date(Date.now() + 3_600_000).toISOString();
  using metadata = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: () => Response.json({ ...role, Expiration: expires }),
  });
  const variables = { HTTP_PROXY: address, HTTPS_PROXY: address };
  const storage = openStorage("s3://bucket", {
    ...variables,
    AWS_ENDPOINT_URL: "https://s3.example.com",
    AWS_CONTAINER_CREDENTIALS_FULL_URI: metadata.url.href,
  });
  const server = "s3.example.com (HTTPS_PROXY is set)";
  await expectRejection(
    withProxy(variables, () => storage.list("")),
    "unavailable",
    `Cannot list s3://bucket: cannot reach ${server}: the proxy rejects the connection`,
  );
  expect(proxy.takeSeen()).toEqual(["CONNECT s3.example.com:443"]);
});

test("serve archives through the proxy, and health does not use it", async () => {
  using directory = makeDirectory();
  await using proxy = await startProxy();
  await using s3 = await startS3Server();
  const env = {
    ...s3.environment,
    DATABASE_URL: directory.at("a.db"),
    PORT: "0",
    ARCHIVE_URL: "s3://bucket",
    ARCHIVE_COMMIT: "sync",
    HTTP_PROXY: `http://user:hidden@127.0.0.1:${proxy.port}`,
  };
  const server = startProgram([...program, "serve"], { env });
  const url = (await server.listening) ?? "";
  const health = { ...env, PORT: new URL(url).port };
  const checked = await runProgram([...program, "health"], { env: health });
  expect(checked).toMatchObject({ code: 0, stdout: "ok\n" });
  server.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  expect(server.output()).not.toContain("hidden");
  const seen = proxy.takeSeen();
  const ofStorage = ` 127.0.0.1:${s3.port} Basic ${btoa("user:hidden")}`;
  expect(seen).toContain(`PUT${ofStorage}`);
  expect(seen.filter((line) => !line.endsWith(ofStorage))).toEqual([]);
});
