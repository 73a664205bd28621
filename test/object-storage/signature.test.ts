import { expect, test } from "bun:test";
import { encode, sign } from "../../src/object-storage/signature.ts";
import { bytes } from "./contract.ts";

const account = {
  accessKeyId: "AKIAIOSFODNN7EXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
};
const time = new Date("2013-05-24T00:00:00Z");

/**
 * One of AWS's examples, and two requests as the program sends them, whose signatures another implementation has verified.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 */
const examples = [
  {
    title: "PUT Object",
    method: "PUT",
    target: "/test%24file.text",
    headers: { date: time.toUTCString(), "x-amz-storage-class": "REDUCED_REDUNDANCY" },
    body: "Welcome to Amazon S3.",
    signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
  },
  {
    title: "a create with temporary credentials",
    method: "PUT",
    target: "/a/base_1%3D2-x",
    headers: { "if-none-match": "*" },
    body: "one",
    sessionToken: "token/with+signs=",
    signature: "33625c7681da7a37fd9f6eba3901391d3942af3da366cc6ae431d9b2e10e1df3",
  },
  {
    title: "a later page of a list",
    method: "GET",
    target: "/?continuation-token=a%2Fb%2B%3D&list-type=2&prefix=log%2F",
    sessionToken: "token/with+signs=",
    signature: "acf07932c124dbc1e9c68c07feb4945e7dd320488c92250efc116a12e3292033",
  },
];

test.each(examples)(
  "the program signs $title as AWS does",
  ({ method, target, headers = {}, body = "", sessionToken = null, signature }) => {
    const url = new URL(`https://examplebucket.s3.amazonaws.com${target}`);
    const request = { method, url, headers, body: bytes(body) };
    const signed = sign(request, { ...account, sessionToken }, "us-east-1", time);
    expect(signed["authorization"]).toEndWith(`Signature=${signature}`);
  },
);

test("everything but unreserved characters is encoded", () => {
  expect(encode("aZ09-._~")).toBe("aZ09-._~");
  expect(encode("a b/c!'()*+$ä=&")).toBe("a%20b%2Fc%21%27%28%29%2A%2B%24%C3%A4%3D%26");
});
