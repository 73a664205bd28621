import { describe, expect, test } from "bun:test";
import { isKey, parseStorageUrl } from "../../src/domain/object-storage.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { expectThrown } from "../support/expect-error.ts";

const credentials = { S3_ACCESS_KEY_ID: "id", S3_SECRET_ACCESS_KEY: "hidden-secret" };

describe("URLs of object storage", () => {
  test("a URL names a bucket with or without a prefix, or a directory", () => {
    expect(parseStorageUrl("s3://backups")).toEqual({ kind: "s3", bucket: "backups", prefix: "" });
    expect(parseStorageUrl("s3://my.backups/a/b-1/")).toEqual({
      kind: "s3",
      bucket: "my.backups",
      prefix: "a/b-1",
    });
    expect(parseStorageUrl("file:///srv/my%20archive/")).toEqual({
      kind: "directory",
      path: "/srv/my archive",
    });
  });

  test.each([
    "backups",
    "s3://",
    "s3:///prefix",
    "S3://backups",
    "https://s3.example.com/backups",
    "file://srv/archive",
    "file:///",
    "file:///srv/%00archive",
    "s3://backups?region=x",
    "s3://backups/a#b",
    "s3://backups/a%",
    "s3://id:hidden@backups/a",
    ...["a//b", "a b", "ä", "a%2Fb%00", "a&b"].map((prefix) => `s3://backups/${prefix}`),
    ...["b", "-b", "b".repeat(64)].map((bucket) => `s3://${bucket}/p`),
  ])("%p is not the URL of a storage", (url) => {
    const problem =
      "must be s3://bucket/prefix (letters, digits and . _ - = only) or file:///directory";
    expectThrown(() => parseStorageUrl(url), "operator", problem);
  });

  test("a key has no empty word and no dots alone", () => {
    expect(["a", "a/b.c", "0-1_2=3", "..."].every(isKey)).toBe(true);
    expect(["", "/a", "a/", "a//b", ".", "a/..", "a b", "a~"].some(isKey)).toBe(false);
  });
});

describe("opening object storage", () => {
  const timeoutMs = 1000;

  test("messages name the URL of the storage, not its credentials", () => {
    const storage = openStorage("s3://backups/shop/", credentials, timeoutMs);
    expect(storage.url).toBe("s3://backups/shop");
    expect(Bun.inspect(storage)).not.toContain("hidden");
  });

  test.each([
    { AWS_EC2_METADATA_DISABLED: "True" },
    { S3_ACCESS_KEY_ID: "id" },
    { AWS_SECRET_ACCESS_KEY: "hidden" },
  ])("the environment %j lacks credentials of S3", (environment) => {
    expectThrown(
      () => openStorage("s3://backups", environment, timeoutMs),
      "operator",
      "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY must be set",
    );
  });

  test.each(["localhost:9000", "ftp://host", "https://id:hidden@host", "https://host?key=hidden"])(
    "%p is not an endpoint",
    (endpoint) => {
      expectThrown(
        () => openStorage("s3://backups", { ...credentials, S3_ENDPOINT: endpoint }, timeoutMs),
        "operator",
        "Invalid S3_ENDPOINT: must be a URL such as https://s3.example.com",
      );
    },
  );
});
