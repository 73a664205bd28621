import { expect, test } from "bun:test";
import { isKey, parseStorageUrl } from "../../src/domain/object-storage.ts";
import { encrypted } from "../../src/object-storage/encrypted.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { expectRejection, expectThrown } from "../support/expect-error.ts";
import { bytes, text } from "./contract.ts";
import { createMemoryStorage } from "./memory.ts";

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

const ARCHIVE_KEY = "5f".repeat(32);
const secret = "ann@example.com";

test("objects are encrypted, each time in another way, and read with their key alone if nothing was changed", async () => {
  const plain = createMemoryStorage();
  const storage = encrypted(plain, { ARCHIVE_KEY });
  await storage.put("a", bytes(secret));
  expect(await storage.create("b", bytes(secret))).toBeTrue();
  expect(await storage.create("b", bytes("other"))).toBeFalse();
  const [a, b] = [await plain.get("a"), await plain.get("b")];
  expect(Buffer.from(a ?? []).includes(secret)).toBeFalse();
  expect(a).not.toEqual(b);
  // A part cannot be verified.
  for (const name of ["a", "b"]) expect(text(await storage.get(name, 1))).toBe(secret);
  expect(await storage.get("c")).toBeNull();
  const other = encrypted(plain, { ARCHIVE_KEY: "a0".repeat(32) });
  const wrong = "it is encrypted with another key than ARCHIVE_KEY";
  await expectRejection(other.get("a"), "operator", wrong);
  const missing = "it is encrypted, and ARCHIVE_KEY is not set";
  await expectRejection(encrypted(plain, {}).get("a"), "operator", missing);
  await plain.put("d", bytes(secret));
  const unencrypted = "d is not encrypted, and ARCHIVE_KEY is set";
  await expectRejection(storage.get("d"), "operator", unencrypted);
  // An object that was changed, cut, or put in the place of another one is empty.
  const body = a ?? new Uint8Array();
  for (let at = 21; at < body.length; at += 1) {
    const changed = body.slice();
    changed[at] = (changed[at] ?? 0) ^ 1;
    await plain.put("a", changed);
    expect(text(await storage.get("a"))).toBe("");
    await plain.put("a", body.slice(0, at));
    expect(text(await storage.get("a"))).toBe("");
  }
  await plain.put("b", body);
  expect(text(await storage.get("b"))).toBe("");
});

test.each(["", "5f", "zz".repeat(32)])("a key of %p is rejected unless it is empty", (key) => {
  const openWith = () => encrypted(createMemoryStorage(), { ARCHIVE_KEY: key });
  const problem = "Invalid ARCHIVE_KEY: must be 64 hex digits";
  if (key === "") openWith();
  else expectThrown(openWith, "operator", problem);
});
