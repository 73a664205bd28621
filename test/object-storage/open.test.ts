import { expect, test } from "bun:test";
import { isKey, parseStorageUrl } from "../../src/domain/object-storage.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { expectThrown } from "../support/expect-error.ts";

const credentials = { S3_ACCESS_KEY_ID: "id", S3_SECRET_ACCESS_KEY: "hidden-secret" };

test("a URL names a bucket with or without a prefix, or a directory", () => {
  const s3 = { kind: "s3", bucket: "my.backups" };
  const directory = { kind: "directory", path: "/srv/my archive" };
  expect<unknown>(parseStorageUrl("s3://my.backups")).toEqual({ ...s3, prefix: "" });
  expect<unknown>(parseStorageUrl("s3://my.backups/a/b-1/")).toEqual({ ...s3, prefix: "a/b-1" });
  expect<unknown>(parseStorageUrl("file:///srv/my%20archive/")).toEqual(directory);
});

test.each([
  ..."backups s3:// s3:///prefix S3://backups https://s3.example.com/backups".split(" "),
  ..."file://srv/archive file:/// file:///srv/%00archive".split(" "),
  ..."s3://backups?region=x s3://backups/a#b s3://backups/a% s3://id:hidden@backups/a".split(" "),
  ...["a//b", "a b", "ä", "a%2Fb%00", "a&b"].map((prefix) => `s3://backups/${prefix}`),
  ...["b", "-b", "b".repeat(64)].map((bucket) => `s3://${bucket}/p`),
])("%p is not the URL of a storage", (url) => {
  const problem =
    "must be s3://bucket/prefix (letters, digits and . _ - = only) or file:///directory";
  expectThrown(() => parseStorageUrl(url), "operator", problem);
});

test("messages name the URL of the storage, not its credentials, and keys have no empty word and no dots alone", () => {
  expect(["a", "a/b.c", "0-1_2=3", "..."].every(isKey)).toBe(true);
  expect(["", "/a", "a/", "a//b", ".", "a/..", "a b", "a~"].some(isKey)).toBe(false);
  const storage = openStorage("s3://backups/shop/", credentials);
  expect(storage.url).toBe("s3://backups/shop");
  expect(Bun.inspect(storage)).not.toContain("hidden");
});

const missing = "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY must be set";
const noEndpoint = "Invalid S3_ENDPOINT: must be a URL such as https://s3.example.com";
const withEndpoint = (endpoint: string) => ({ ...credentials, S3_ENDPOINT: endpoint });
test.each<[Record<string, string>, string]>([
  [{ AWS_EC2_METADATA_DISABLED: "True" }, missing],
  [{ S3_ACCESS_KEY_ID: "id" }, missing],
  [{ AWS_SECRET_ACCESS_KEY: "hidden" }, missing],
  [withEndpoint("localhost:9000"), noEndpoint],
  [withEndpoint("ftp://host"), noEndpoint],
  [withEndpoint("https://id:hidden@host"), noEndpoint],
  [withEndpoint("https://host?key=hidden"), noEndpoint],
])("a storage of S3 is not opened with %j", (environment, message) => {
  expectThrown(() => openStorage("s3://backups", environment), "operator", message);
});
