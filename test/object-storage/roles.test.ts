import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { openCredentials } from "../../src/object-storage/credentials.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import type { Credentials } from "../../src/object-storage/signature.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection, expectThrown } from "../support/expect-error.ts";
import { startS3Server, testAccount } from "./s3-server.ts";

const MINUTE_MS = 60_000;
const roles = "/latest/meta-data/iam/security-credentials/";
const notFound = "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY are not set, and no role was found";

/** The metadata service of a machine, and of a container, whose paths and tokens it checks. */
function startMetadata() {
  const state = {
    account: { ...testAccount, sessionToken: "token" },
    expires: new Date(60 * MINUTE_MS).toISOString(),
    /** Replaces the response with credentials. */
    answer: null as (() => Response | Promise<Response>) | null,
    loads: 0,
    authorization: null as string | null,
  };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch({ method, url, headers }) {
      const { pathname } = new URL(url);
      const call = `${method} ${pathname}`;
      if (call === "PUT /latest/api/token" && headers.has("x-aws-ec2-metadata-token-ttl-seconds"))
        return new Response("session");
      const isMachine = headers.get("x-aws-ec2-metadata-token") === "session";
      if (call === `GET ${roles}` && isMachine) return new Response("my-role\n");
      const isContainer = headers.get("authorization") === state.authorization;
      const isKnown =
        (call === `GET ${roles}my-role` && isMachine) || (call === "GET /v1" && isContainer);
      if (!isKnown) return new Response(null, { status: 403 });
      state.loads += 1;
      const { accessKeyId, secretAccessKey } = state.account;
      const { sessionToken: token } = state.account;
      const body = {
        AccessKeyId: accessKeyId,
        SecretAccessKey: secretAccessKey,
        Token: token,
        Expiration: state.expires,
      };
      return state.answer?.() ?? Response.json(body);
    },
  });
  const url = `http://127.0.0.1:${server.port}`;
  return {
    state,
    host: new URL(url).host,
    machine: { AWS_EC2_METADATA_SERVICE_ENDPOINT: url },
    container: { AWS_CONTAINER_CREDENTIALS_FULL_URI: `${url}/v1` },
    [Symbol.dispose]: () => void server.stop(true),
  };
}

test("requests are signed with the credentials of the machine when no key is set", async () => {
  using metadata = startMetadata();
  metadata.state.expires = new Date(Date.now() + 60 * MINUTE_MS).toISOString();
  await using server = await startS3Server({ account: metadata.state.account });
  const { S3_ENDPOINT: awsEndpointUrl = "" } = server.environment;
  const environment = {
    ...metadata.machine,
    AWS_ENDPOINT_URL: awsEndpointUrl,
    AWS_DEFAULT_REGION: "us-east-1",
  };
  const storage = openStorage("s3://bucket/prefix", environment);
  const lists = await Promise.all([storage.list("a"), storage.list("b"), storage.list("c")]);
  expect(lists).toEqual([[], [], []]);
  expect(metadata.state.loads).toBe(1);
  // Keys take precedence.
  const { accessKeyId, secretAccessKey } = testAccount;
  const keys = { S3_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey };
  const rejected = openStorage("s3://bucket", { ...environment, ...keys }).list("");
  await expectRejection(rejected, "operator", /InvalidToken/);
  expect(metadata.state.loads).toBe(1);
});

test("credentials are renewed five minutes before they expire, and used meanwhile", async () => {
  using metadata = startMetadata();
  const { state, machine, host } = metadata;
  const clock = { ms: 0 };
  const credentials = openCredentials(machine, () => clock.ms);
  const tokenAt = async (minutes: number) => {
    clock.ms = minutes * MINUTE_MS;
    return (await credentials()).sessionToken;
  };
  expect(await tokenAt(0)).toBe("token");
  state.account = { ...state.account, sessionToken: "second" };
  const held = Promise.withResolvers<Response>();
  state.answer = () => held.promise;
  expect(await tokenAt(54.9)).toBe("token");
  expect(state.loads).toBe(1);
  const during = await Promise.all([tokenAt(55), tokenAt(55), tokenAt(56)]);
  expect(during).toEqual(["token", "token", "token"]);
  while (state.loads < 2) await Bun.sleep(1);
  state.answer = () => new Response(null, { status: 500 });
  held.resolve(new Response(null, { status: 500 }));
  // It is not tried again at once, but some seconds later.
  for (let call = 0; call < 50; call++) {
    expect(await tokenAt(56)).toBe("token");
    await Bun.sleep(1);
  }
  expect(state.loads).toBe(2);
  while (state.loads < 3) {
    expect(await tokenAt(57)).toBe("token");
    await Bun.sleep(1);
  }
  const problem = `${notFound}: ${host} responded with an error (500)`;
  await expectRejection(tokenAt(60), "unavailable", problem);
  state.answer = null;
  state.expires = new Date(120 * MINUTE_MS).toISOString();
  expect(await tokenAt(60.1)).toBe("second");
  state.account = { ...state.account, sessionToken: "third" };
  expect(await tokenAt(115)).toBe("second");
  while ((await tokenAt(115)) !== "third") await Bun.sleep(1);
});

test("the token of a container is read again from its file", async () => {
  using directory = makeDirectory();
  using metadata = startMetadata();
  const { state, container } = metadata;
  const path = directory.at("token");
  const environment = { ...container, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: path };
  const clock = { ms: 0 };
  const credentials = openCredentials(environment, () => clock.ms);
  for (const authorization of ["Bearer 1", "Bearer 2"]) {
    writeFileSync(path, authorization);
    state.authorization = authorization;
    expect<Credentials>(await credentials()).toMatchObject(state.account);
    clock.ms += 60 * MINUTE_MS;
  }
  expect(state.loads).toBe(2);
});

const complete = {
  ...{ AccessKeyId: "a", SecretAccessKey: "b", Token: "c" },
  Expiration: new Date().toISOString(),
};

describe("without credentials", () => {
  test.each<[string, () => Response]>([
    ["responded with an error (404)", () => new Response("hidden", { status: 404 })],
    ["responded with an error (302)", () => Response.redirect("/hidden")],
    ["responded without credentials", () => new Response("<hidden>")],
    ...[{ AccessKeyId: "" }, { Token: undefined }, { Expiration: "hidden" }].map(
      (part): [string, () => Response] => [
        "responded without credentials",
        () => Response.json({ ...complete, ...part }),
      ],
    ),
    ["responded without credentials", () => new Response("x".repeat(2 ** 20))],
    [
      "responded without credentials",
      () => new Response(new ReadableStream({ pull: (stream) => stream.enqueue("x".repeat(999)) })),
    ],
  ])("a storage is not used when the metadata service %s", async (problem, answer) => {
    using metadata = startMetadata();
    metadata.state.answer = answer;
    const storage = openStorage("s3://bucket", metadata.container);
    const message = `Cannot list s3://bucket: ${notFound}: ${metadata.host} ${problem}`;
    await expectRejection(storage.list(""), "operator", message);
  });

  test.each([
    "http://example.com/",
    "http://10.0.0.1/",
    "http://127.0.0.1.example.com/",
    "http://notlocalhost/",
    "http://169.254.170.2@example.com/",
    "ftp://127.0.0.1/",
    "127.0.0.1",
  ])("credentials are not asked of %p, which others could read", (url) => {
    for (const name of ["CONTAINER_CREDENTIALS_FULL_URI", "EC2_METADATA_SERVICE_ENDPOINT"]) {
      const problem = "must be https://…, or http://… with an address of this machine or its link";
      expectThrown(
        () => openCredentials({ [`AWS_${name}`]: url }),
        "operator",
        `Invalid AWS_${name}: ${problem}`,
      );
    }
  });

  test("a path of a container cannot be that of another host", () => {
    const environment = { AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: "@example.com/" };
    const message = /^Invalid AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: /;
    expectThrown(() => openCredentials(environment), "operator", message);
    const valid = ["http://[::1]/", "http://169.254.170.23/v1/", "https://example.com/"];
    for (const url of valid) openCredentials({ AWS_CONTAINER_CREDENTIALS_FULL_URI: url });
  });
});
