import { expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { openCredentials } from "../../src/object-storage/credentials.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection, expectThrown } from "../support/expect-error.ts";
import { startS3Server, testAccount } from "./s3-server.ts";

const MINUTE_MS = 60_000;
const roles = "/latest/meta-data/iam/security-credentials/";
const notFound = "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY are not set, and no role was found";

/** The metadata of a machine and of a container. Tokens expire an hour after the start of `clock`. */
function startMetadata(clock = { ms: 0 }) {
  const { accessKeyId, secretAccessKey } = testAccount;
  const state = {
    credentials: { AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, Token: "first" },
    expires: new Date(clock.ms + 60 * MINUTE_MS).toISOString(),
    answer: null as (() => Response | Promise<Response>) | null,
    loads: 0,
    authorization: null as string | null,
  };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch({ method, url, headers }) {
      const call = `${method} ${new URL(url).pathname}`;
      if (call === "PUT /latest/api/token" && headers.has("x-aws-ec2-metadata-token-ttl-seconds"))
        return new Response("session");
      const isMachine = headers.get("x-aws-ec2-metadata-token") === "session";
      if (call === `GET ${roles}` && isMachine) return new Response("my-role\n");
      const isContainer = headers.get("authorization") === state.authorization;
      const isAllowed = call === `GET ${roles}my-role` ? isMachine : isContainer;
      if (!isAllowed) return new Response(null, { status: 403 });
      state.loads += 1;
      const body = { ...state.credentials, Expiration: state.expires };
      return state.answer?.() ?? Response.json(body);
    },
  });
  const { origin, host } = server.url;
  return {
    state,
    host,
    machine: { AWS_EC2_METADATA_SERVICE_ENDPOINT: origin },
    container: { AWS_CONTAINER_CREDENTIALS_FULL_URI: `${origin}/v1` },
    [Symbol.dispose]: () => void server.stop(true),
  };
}

test("requests are signed with the credentials of the machine when no key is set", async () => {
  using metadata = startMetadata({ ms: Date.now() });
  const account = { ...testAccount, sessionToken: "first" };
  const region = "eu-central-1";
  await using server = await startS3Server({ account, region });
  const aws = { AWS_ENDPOINT_URL: server.environment["S3_ENDPOINT"], AWS_DEFAULT_REGION: region };
  const environment = { ...metadata.machine, ...aws, S3_REGION: "" };
  const storage = openStorage("s3://bucket/prefix", environment);
  expect(await Promise.all([storage.list("a"), storage.list("b")])).toEqual([[], []]);
  const keys = { S3_ACCESS_KEY_ID: testAccount.accessKeyId, AWS_SECRET_ACCESS_KEY: "preferred" };
  const preferred = openStorage("s3://bucket", { ...environment, ...keys });
  await expectRejection(preferred.list(""), "operator", /InvalidToken/);
  expect(metadata.state.loads).toBe(1);
});

test("credentials are renewed five minutes before they expire, and used meanwhile", async () => {
  const clock = { ms: 0 };
  using metadata = startMetadata(clock);
  const { state, machine, host } = metadata;
  const credentials = openCredentials(machine, () => clock.ms);
  const tokenAt = async (minutes: number) => {
    clock.ms = minutes * MINUTE_MS;
    const { sessionToken } = await credentials();
    await Bun.sleep(1);
    return sessionToken;
  };
  expect(await tokenAt(0)).toBe("first");
  const held = Promise.withResolvers<Response>();
  state.answer = () => held.promise;
  expect(await tokenAt(54.9)).toBe("first");
  expect(state.loads).toBe(1);
  const during = await Promise.all([tokenAt(55), tokenAt(55), tokenAt(56)]);
  expect(during).toEqual(["first", "first", "first"]);
  while (state.loads < 2) await Bun.sleep(1);
  state.answer = () => new Response(null, { status: 500 });
  held.resolve(state.answer());
  // It is not tried again immediately, but some seconds later.
  for (let call = 0; call < 50; call++) expect(await tokenAt(56)).toBe("first");
  expect(state.loads).toBe(2);
  while (state.loads < 3) expect(await tokenAt(57)).toBe("first");
  const problem = `${notFound}: ${host} responded with an error (500)`;
  await expectRejection(tokenAt(60), "unavailable", problem);
  Object.assign(state, { answer: null, expires: new Date(120 * MINUTE_MS).toISOString() });
  state.credentials.Token = "second";
  expect(await tokenAt(60.1)).toBe("second");
  state.credentials.Token = "third";
  expect(await tokenAt(115)).toBe("second");
  while ((await tokenAt(115)) !== "third");
});

test("the token of a container is read again from its file", async () => {
  using directory = makeDirectory();
  const clock = { ms: 0 };
  using metadata = startMetadata(clock);
  const path = directory.at("token");
  const environment = { ...metadata.container, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: path };
  const credentials = openCredentials(environment, () => clock.ms);
  for (const authorization of ["Bearer 1", "Bearer 2"]) {
    writeFileSync(path, authorization);
    metadata.state.authorization = authorization;
    expect(await credentials()).toMatchObject(testAccount);
    clock.ms += 60 * MINUTE_MS;
  }
  expect(metadata.state.loads).toBe(2);
});

const complete = { AccessKeyId: "a", SecretAccessKey: "b", Token: "c", Expiration: "2026-11-27" };
const endless = { pull: (stream: any) => stream.enqueue("x".repeat(999)) };

test.each<[string, () => Response]>([
  [" an error (404)", () => new Response("hidden", { status: 404 })],
  [" an error (302)", () => Response.redirect("/hidden")],
  ["out credentials", () => new Response("<hidden>")],
  ["out credentials", () => Response.json({ ...complete, AccessKeyId: "" })],
  ["out credentials", () => Response.json({ ...complete, Expiration: "hidden" })],
  ["out credentials", () => new Response(new ReadableStream(endless))],
])("a storage is not used when the metadata service responds with%s", async (problem, answer) => {
  using metadata = startMetadata();
  metadata.state.answer = answer;
  const storage = openStorage("s3://bucket", metadata.container);
  const source = `${notFound}: ${metadata.host}`;
  const message = `Cannot list s3://bucket: ${source} responded with${problem}`;
  await expectRejection(storage.list(""), "operator", message);
});

test("credentials are asked only of addresses that no other machine can read", () => {
  const open = (name: string, url: string) => openCredentials({ [`AWS_${name}`]: url });
  const problem = "must be https://…, or http://… with an address of this machine or its link";
  const urls = "http://example.com/ http://10.0.0.1/ http://127.0.0.1.example.com/";
  for (const url of `${urls} http://notlocalhost/ ftp://127.0.0.1/ 127.0.0.1`.split(" "))
    for (const name of ["CONTAINER_CREDENTIALS_FULL_URI", "EC2_METADATA_SERVICE_ENDPOINT"])
      expectThrown(() => open(name, url), "operator", `Invalid AWS_${name}: ${problem}`);
  const relative = "CONTAINER_CREDENTIALS_RELATIVE_URI";
  expectThrown(() => open(relative, "@a.b/"), "operator", `Invalid AWS_${relative}: ${problem}`);
  open(relative, "/v2/credentials/id");
  for (const url of ["http://[::1]/", "http://169.254.170.23/v1/", "https://example.com/"])
    open("CONTAINER_CREDENTIALS_FULL_URI", url);
});

test("keys in files are read again when they are used, and kept while a file cannot be read", () => {
  using directory = makeDirectory();
  const names = ["S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_SESSION_TOKEN"] as const;
  const environment = Object.fromEntries(names.map((name) => [`${name}_FILE`, directory.at(name)]));
  const write = (id: string) => {
    for (const name of names) writeFileSync(directory.at(name), `${name}-${id}\n`);
  };
  const unreadable = /^Cannot read S3_ACCESS_KEY_ID_FILE/;
  expectThrown(() => openCredentials(environment), "operator", unreadable);
  write("1");
  const credentials = openCredentials(environment);
  const expectKeys = (id: string) => {
    const [accessKeyId, secretAccessKey, sessionToken] = names.map((name) => `${name}-${id}`);
    expect<unknown>(credentials()).toEqual({ accessKeyId, secretAccessKey, sessionToken });
  };
  write("2");
  expectKeys("2");
  writeFileSync(directory.at(names[0]), "half written");
  rmSync(directory.at(names[2]));
  expectKeys("2");
  write("3");
  expectKeys("3");
});
