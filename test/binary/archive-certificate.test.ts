import { describe, expect, test } from "bun:test";
import { binary, runBinary } from "../support/program.ts";

const fixtures = `${import.meta.dir}/../fixtures`;

describe.skipIf(binary === "")("storage with a certificate of its own", () => {
  test("is trusted when the certificate is in NODE_EXTRA_CA_CERTS", async () => {
    await using server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      tls: {
        cert: Bun.file(`${fixtures}/localhost.crt`),
        key: Bun.file(`${fixtures}/localhost.key`),
      },
      fetch: () => new Response("<ListBucketResult></ListBucketResult>"),
    });
    const environment = {
      ARCHIVE_URL: "s3://bucket",
      S3_ENDPOINT: `https://localhost:${server.port}`,
      S3_ACCESS_KEY_ID: "id",
      S3_SECRET_ACCESS_KEY: "secret",
      NODE_EXTRA_CA_CERTS: `${fixtures}/localhost.crt`,
    };
    const trusted = await runBinary(["archive", "check"], environment);
    expect([trusted.code, trusted.stderr]).toEqual([
      1,
      "Cannot check s3://bucket: the archive is empty\n",
    ]);
  });
});
