// Which requests of the program use a proxy.
import { expect, test } from "bun:test";
import { startS3Server, testAccount } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { runProgram, startProgram } from "../support/program.ts";

const program = [process.execPath, `${import.meta.dir}/../../src/main.ts`];

test("requests to the storage use a proxy, unless NO_PROXY excludes it, and those of health do not", async () => {
  using directory = makeDirectory();
  const seen = new Set<string>();
  using proxy = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request) {
      const { method, url, headers, body } = request;
      seen.add(`${method} ${new URL(url).host} ${headers.get("proxy-authorization")}`);
      return fetch(url, { method, headers, body, proxy: false, decompress: false });
    },
  });
  await using s3 = await startS3Server({ account: { ...testAccount, sessionToken: "token" } });
  const role = {
    ...{ AccessKeyId: testAccount.accessKeyId, SecretAccessKey: testAccount.secretAccessKey },
    ...{ Token: "token", Expiration: new Date(Date.now() + 3_600_000).toISOString() },
  };
  using metadata = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => Response.json(role) });
  const env = {
    AWS_ENDPOINT_URL: s3.environment["S3_ENDPOINT"],
    AWS_CONTAINER_CREDENTIALS_FULL_URI: metadata.url.href,
    DATABASE_URL: directory.at("a.db"),
    PORT: "0",
    ARCHIVE_URL: "s3://bucket",
    ARCHIVE_COMMIT: "sync",
    HTTP_PROXY: proxy.url.href.replace("//", "//user:hidden@"),
  };
  const server = startProgram([...program, "serve"], { env });
  const { port } = new URL((await server.listening) ?? "");
  const health = await runProgram([...program, "health"], { env: { ...env, PORT: port } });
  expect(health).toMatchObject({ code: 0, stdout: "ok\n" });
  server.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  expect(server.output()).not.toContain("hidden");
  const suffix = `127.0.0.1:${s3.port} Basic ${btoa("user:hidden")}`;
  const methods = ["DELETE", "GET", "PUT"];
  expect([...seen].sort()).toEqual(methods.map((method) => `${method} ${suffix}`));
  seen.clear();
  const direct = { ...env, NO_PROXY: `a.b, 127.0.0.1:${s3.port}` };
  expect((await runProgram([...program, "archive", "list"], { env: direct })).code).toBe(0);
  expect(seen.size).toBe(0);
});
