import { describe, expect, test } from "bun:test";
import { encode, sign } from "../../src/object-storage/signature.ts";
import { bytes } from "./contract.ts";
import { type Expected, verifySignature, type WireRequest } from "./verify-signature.ts";

/** The account and the time of all of AWS's examples. */
const account = {
  accessKeyId: "AKIAIOSFODNN7EXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
};
const time = new Date("2013-05-24T00:00:00Z");
const expected: Expected = { account, region: "us-east-1", nowMs: time.getTime() };
const host = "examplebucket.s3.amazonaws.com";

interface Example {
  readonly title: string;
  readonly method: string;
  readonly target: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signature: string;
}

/** @see https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
const examples: readonly Example[] = [
  {
    title: "GET Object",
    method: "GET",
    target: "/test.txt",
    headers: { range: "bytes=0-9" },
    signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
  },
  {
    title: "PUT Object",
    method: "PUT",
    target: "/test%24file.text",
    headers: {
      date: "Fri, 24 May 2013 00:00:00 GMT",
      "x-amz-storage-class": "REDUCED_REDUNDANCY",
    },
    body: "Welcome to Amazon S3.",
    signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
  },
  {
    title: "GET Bucket Lifecycle",
    method: "GET",
    target: "/?lifecycle=",
    signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
  },
  {
    title: "Get Bucket (List Objects)",
    method: "GET",
    target: "/?max-keys=2&prefix=J",
    signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
  },
];

function requestOf({ method, target, headers = {}, body = "" }: Example) {
  return { method, url: new URL(`https://${host}${target}`), headers, body: bytes(body) };
}

/** What arrives at the server when the program signs the request. */
function signed(example: Example): WireRequest {
  const request = requestOf(example);
  const headers = sign(request, { ...account, sessionToken: null }, "us-east-1", time);
  return { ...request, target: example.target, headers };
}

describe("Signature Version 4", () => {
  test.each(examples.map((example) => [example.title, example] as const))(
    "the program and the server of the tests sign the example %s as AWS does",
    (_title, example) => {
      const request = signed(example);
      expect(request.headers["authorization"]).toEndWith(`Signature=${example.signature}`);
      expect(verifySignature(request, expected)).toBeNull();
    },
  );

  const [example = examples[0]!] = examples;
  const request = signed(example);
  const withHeader = (header: Readonly<Record<string, string>>) => ({
    headers: { ...request.headers, ...header },
  });

  test.each([
    ["another method", "SignatureDoesNotMatch", { method: "HEAD" }],
    ["another path", "SignatureDoesNotMatch", { target: "/test2.txt" }],
    ["another query", "SignatureDoesNotMatch", { target: "/test.txt?a=" }],
    ["another header", "SignatureDoesNotMatch", withHeader({ range: "bytes=0-8" })],
    ["another body", "XAmzContentSHA256Mismatch", { body: bytes("other") }],
    ["a header that is not signed", "AccessDenied", withHeader({ "x-amz-acl": "public-read" })],
    ["no signature", "AccessDenied", { headers: { host } }],
  ])("the server of the tests rejects a request with %s", (_what, code, changes) => {
    expect(verifySignature({ ...request, ...changes }, expected)).toBe(code);
  });

  test("the server of the tests rejects another time", () => {
    const nowMs = time.getTime() + 16 * 60_000;
    expect(verifySignature(request, { ...expected, nowMs })).toBe("RequestTimeTooSkewed");
  });

  test("everything but unreserved characters is encoded", () => {
    expect(encode("aZ09-._~")).toBe("aZ09-._~");
    expect(encode("a b/c!'()*+$ä=&")).toBe("a%20b%2Fc%21%27%28%29%2A%2B%24%C3%A4%3D%26");
  });
});
