import { expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { MAX_OBJECT_BYTES, type ObjectStorage } from "../../src/domain/object-storage.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { bytes, objectStorageContract } from "./contract.ts";
import { type S3Server, startS3Server, testAccount } from "./s3-server.ts";

const timeoutMs = 20_000;

function open(server: S3Server, environment: Readonly<Record<string, string>> = {}): ObjectStorage {
  return openStorage("s3://bucket/prefix", { ...server.environment, ...environment }, timeoutMs);
}

/** Calls every operation. @returns the errors, without the action and the URL */
async function problemsOf(storage: ObjectStorage): Promise<Set<string>> {
  const calls = [
    storage.get("a"),
    storage.put("a", bytes("one")),
    storage.create("b", bytes("one")),
    storage.list(""),
    storage.remove(["a"]),
  ];
  const problems = new Set<string>();
  for (const result of await Promise.allSettled(calls)) {
    const error: unknown = result.status === "rejected" ? result.reason : null;
    if (!(error instanceof AppError)) throw new Error(`Expected an AppError, got: ${error}`);
    const problem = error.message.replace(/^Cannot [a-z ]+ s3:\/\/bucket\/prefix: /, "");
    problems.add(`${error.code}: ${problem}`);
    // The server names both in its messages.
    expect(Bun.inspect(error)).not.toContain(testAccount.accessKeyId);
    expect(Bun.inspect(error)).not.toContain(testAccount.secretAccessKey);
  }
  return problems;
}

objectStorageContract(async () => {
  const server = await startS3Server({ pageSize: 10 });
  const close = () => server[Symbol.asyncDispose]();
  return { storage: open(server), other: open(server), [Symbol.asyncDispose]: close };
});

test("objects are below the prefix in the bucket, and others are not listed", async () => {
  await using server = await startS3Server();
  const storage = open(server);
  await storage.put("a/b", bytes("one"));
  expect([...server.objects.keys()]).toEqual(["prefix/a/b"]);
  const whole = openStorage("s3://bucket", server.environment, timeoutMs);
  await whole.put("prefix2/a", bytes("two"));
  server.objects.set("prefix/not a key", [...server.objects.values()][0]!);
  expect((await storage.list("")).map(({ key }) => key)).toEqual(["a/b"]);
  expect((await whole.list("")).map(({ key }) => key)).toEqual(["prefix/a/b", "prefix2/a"]);
  // The bucket is named like the first part of the host.
  server.objects.clear();
  const s3Endpoint = `http://bucket.localhost:${server.port}/`;
  await open(server, { S3_ENDPOINT: s3Endpoint }).put("a/b", bytes("one"));
  expect([...server.objects.keys()]).toEqual(["prefix/a/b"]);
});

const checkKeys = "check S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY";
const NO_HEADER = "S3_ACCESS_KEY_ID or another variable has a line end or is not ASCII";

test.each<[Record<string, string>, string]>([
  [
    { S3_ACCESS_KEY_ID: "other" },
    `the access key does not exist: ${checkKeys} (403 InvalidAccessKeyId)`,
  ],
  [
    { S3_SECRET_ACCESS_KEY: "other" },
    `the secret key is wrong: ${checkKeys} (403 SignatureDoesNotMatch)`,
  ],
  [
    { S3_SESSION_TOKEN: "other" },
    "the session token is not valid: check S3_SESSION_TOKEN (403 InvalidToken)",
  ],
  [
    { S3_REGION: "other" },
    "the bucket is in another region: set S3_REGION to us-east-1 (400 AuthorizationHeaderMalformed)",
  ],
  [{ S3_ACCESS_KEY_ID: "key\r" }, NO_HEADER],
  [{ S3_REGION: "ключ" }, NO_HEADER],
])("a wrong variable is an error for the operator: %o", async (environment, problem) => {
  await using server = await startS3Server();
  expect(await problemsOf(open(server, environment))).toEqual(new Set([`operator: ${problem}`]));
});

test("a create is refused by 412, whatever its code is, and by a server that is not S3, and no code of another kind is shown", async () => {
  await using server = await startS3Server();
  const storage = open(server);
  server.misbehave = () => ({ do: "fail", status: 412, code: "ObjectAlreadyExists" });
  expect(await storage.create("a", bytes("one"))).toBeFalse();
  await expectRejection(storage.get("a"), "operator", /responded with an error/);
  // What a terminal would obey.
  server.misbehave = () => ({ do: "fail", status: 400, code: "\x1b]0;owned\x07" });
  await expectRejection(storage.get("a"), "operator", /responded with an error \(400\)$/);
  server.misbehave = () => ({ do: "answer", body: "<html></html>" });
  const problem = /: the server does not respond like S3: check S3_ENDPOINT$/;
  for (const call of [storage.list(""), storage.get("a"), storage.create("a", bytes("one"))])
    await expectRejection(call, "operator", problem);
});

const region = "operator: the bucket is in another region: set S3_REGION and S3_ENDPOINT";
const error = "the server responded with an error";
test.each([
  [403, "AccessDenied", "operator: the credentials have no permission for this"],
  [400, "ExpiredToken", "operator: the credentials have expired"],
  [403, "RequestTimeTooSkewed", "operator: the clock of this machine is wrong by several minutes"],
  [404, "NoSuchBucket", "operator: the bucket does not exist"],
  [301, "PermanentRedirect", region],
  [400, "InvalidRequest", `operator: ${error}`],
  [501, "NotImplemented", "operator: the server does not support conditional writes"],
  [403, "QuotaExceeded", "unavailable: the storage is full"],
  [507, "InsufficientStorage", "unavailable: the storage is full"],
  [503, "SlowDown", "unavailable: the server asks for fewer requests"],
  [500, "InternalError", `unavailable: ${error}`],
  [408, "RequestTimeout", `unavailable: ${error}`],
  [409, "ConditionalRequestConflict", `unavailable: ${error}`],
])("%d %s is reported as such", async (status, code, problem) => {
  await using server = await startS3Server();
  server.misbehave = () => ({ do: "fail", status, code });
  expect(await problemsOf(open(server))).toEqual(new Set([`${problem} (${status} ${code})`]));
});

test("a server that closes connections or cannot be reached may be reached later", async () => {
  await using server = await startS3Server();
  const host = `127.0.0.1:${server.port}`;
  server.misbehave = () => ({ do: "refuse" });
  for (const [endpoint, problem] of [
    [`http://${host}`, `${host}: the connection was closed`],
    ["http://127.0.0.1:1", "127.0.0.1:1: connection refused"],
    [`https://${host}`, `${host}: the server does not use TLS`],
    ["http://none.invalid", "none.invalid: unknown host"],
  ] as const) {
    const problems = await problemsOf(open(server, { S3_ENDPOINT: endpoint }));
    expect(problems).toEqual(new Set([`unavailable: cannot reach ${problem}`]));
  }
});

test("a certificate that is not trusted is named", async () => {
  using server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    tls: {
      cert: Bun.file(`${import.meta.dir}/../fixtures/localhost.crt`),
      key: Bun.file(`${import.meta.dir}/../fixtures/localhost.key`),
    },
    fetch: () => new Response(),
  });
  const keys = { S3_ACCESS_KEY_ID: "id", S3_SECRET_ACCESS_KEY: "secret" };
  const environment = { ...keys, S3_ENDPOINT: server.url.origin };
  const [problem] = await problemsOf(openStorage("s3://bucket/prefix", environment, timeoutMs));
  expect(problem).toStartWith(
    `operator: the certificate of 127.0.0.1:${server.port} is not valid or not trusted (`,
  );
});

test("a response that is cut is not taken for a whole one, and one without an end takes no longer than the timeout", async () => {
  await using server = await startS3Server();
  const storage = open(server);
  await storage.put("a", new Uint8Array(200_000));
  server.misbehave = () => ({ do: "cut" });
  await expectRejection(storage.get("a"), "unavailable", /: the connection was closed$/);
  await expectRejection(storage.list(""), "unavailable", /: the connection was closed$/);
  server.misbehave = () => ({ do: "pour" });
  expect((await storage.get("a", 1000))?.length).toBeGreaterThan(1000);
  expect((await storage.get("a"))?.length).toBeLessThan(2 * MAX_OBJECT_BYTES);
  await expectRejection(storage.list(""), "operator", /: the server does not respond like S3: /);
  const impatient = openStorage("s3://bucket/prefix", server.environment, 50);
  const problem = `unavailable: no response from 127.0.0.1:${server.port} in 0.05 s`;
  for (const fault of ["drip", "stall"] as const) {
    server.misbehave = () => ({ do: fault });
    expect([fault, ...(await problemsOf(impatient))]).toEqual([fault, problem]);
  }
});

test.each([
  ["repeats its pages", false, "operator", /does not respond like S3/],
  ["always has more", true, "unavailable", /the list of objects does not end$/],
] as const)("a list ends when the server %s", async (_, isNew, code, message) => {
  await using server = await startS3Server();
  server.misbehave = () => ({
    do: "answer",
    body: `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>${isNew ? Math.random() : 1}</NextContinuationToken></ListBucketResult>`,
  });
  const storage = openStorage("s3://bucket", server.environment, 300);
  await expectRejection(storage.list(""), code, message);
});

test("a list ignores keys that the program does not write, and fails when it is not well-formed", async () => {
  await using server = await startS3Server();
  const entry = (key: string) =>
    `<Contents><Key>${key}</Key><LastModified>2026-11-01T00:00:00Z</LastModified><Size>1</Size></Contents>`;
  const keys = ["prefix/a/b", "prefix/a/../../x", "prefix/a/&x;", "prefix/a/~"];
  const doctype = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>';
  const list = `<ListBucketResult>${keys.map(entry).join("")}</ListBucketResult>`;
  server.misbehave = () => ({ do: "answer", body: doctype + list });
  expect((await open(server).list("a/")).map(({ key }) => key)).toEqual(["a/b"]);
  const open1 = "<Contents>".repeat(400_000);
  server.misbehave = () => ({ do: "answer", body: `${open1}</ListBucketResult>` });
  await expectRejection(open(server).list("a/"), "operator", /does not respond like S3/);
});

test.each<[string, boolean, (xml: string) => string]>([
  ["with attributes", true, (xml) => xml.replace(/<(Contents|Key)>/g, '<$1 xmlns="http://s3/">')],
  ["with prefixes", true, (xml) => xml.replace(/<(?=\w)/g, "<s3:").replaceAll("</", "</s3:")],
  ["without a count", true, (xml) => xml.replace(/<KeyCount>\d+<.KeyCount>/, "")],
  ["with another count", false, (xml) => xml.replace("<KeyCount>1<", "<KeyCount>2<")],
  ["with encoded keys", false, (xml) => xml.replace(/>prefix.a./g, ">prefix%2Fa%2F")],
  ["of the first version", false, (xml) => xml.replace(/<Next.*Token>/, "")],
])("a list %s has all objects or fails: %p", async (_, isKnown, rewrite) => {
  await using server = await startS3Server({ pageSize: 1 });
  const storage = open(server);
  for (const key of ["a/1", "a/2"]) await storage.put(key, bytes(key));
  server.misbehave = () => ({ do: "rewrite", rewrite });
  const listed = storage.list("a/").then((objects) => objects.map(({ key }) => key));
  if (isKnown) expect(await listed).toEqual(["a/1", "a/2"]);
  else await expectRejection(listed, "operator", /does not respond like S3/);
});

test("a list is sorted and has each object once, in whatever order the server sends it", async () => {
  await using server = await startS3Server({ pageSize: 4 });
  const storage = open(server);
  const keys = Array.from({ length: 11 }, (_, index) => `k${String(index).padStart(2, "0")}`);
  for (const key of keys) await storage.put(key, bytes(key));
  const last = /(<Contents>.*)(<Contents>.*)(?=<.ListB)/;
  const rewrite = (xml: string) => xml.replace(/<KeyC.*KeyCount>/, "").replace(last, "$2$1$2");
  server.misbehave = () => ({ do: "rewrite", rewrite });
  expect((await storage.list("")).map(({ key }) => key)).toEqual(keys);
});
