import { expect, test } from "bun:test";
import { readdirSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { createDirectoryStorage } from "../../src/object-storage/directory.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { bytes, objectStorageContract } from "./contract.ts";

const timeoutMs = 20_000;

function open(directory: TemporaryDirectory) {
  return openStorage(`file://${directory.path}`, {}, timeoutMs);
}

objectStorageContract(async () => {
  const directory = makeDirectory();
  return {
    storage: open(directory),
    other: open(directory),
    [Symbol.asyncDispose]: async () => directory[Symbol.dispose](),
  };
});

test("files are readable only by their owner, and no empty directories are left, or partial files for more than an hour", async () => {
  using directory = makeDirectory();
  const storage = open(directory);
  await storage.create("a/b/c/1", bytes("one"));
  for (const key of ["a/b/c/2", "a/d/1"]) await storage.put(key, bytes("one"));
  const modeOf = (path: string) => statSync(directory.at(path)).mode & 0o777;
  expect(["a", "a/b/c/1", "a/d/1"].map(modeOf)).toEqual([0o700, 0o600, 0o600]);
  expect(readdirSync(directory.at("~partial"))).toEqual([]);
  await storage.remove(["a/b/c/1"]);
  expect(readdirSync(directory.at("a/b/c"))).toEqual(["2"]);
  await storage.remove(["a/b/c/2"]);
  expect(readdirSync(directory.at("a"))).toEqual(["d"]);
  await storage.remove(["a/d/1", "a/d/2"]);
  expect(readdirSync(directory.path)).toEqual(["~partial"]);
  // Of a process that has died.
  for (const name of ["old", "new"]) writeFileSync(directory.at(`~partial/${name}`), "x");
  const hourAgo = Date.now() / 1000 - 3_700;
  utimesSync(directory.at("~partial/old"), hourAgo, hourAgo);
  const later = open(directory);
  await later.put("a", bytes("one"));
  expect(readdirSync(directory.at("~partial"))).toEqual(["new"]);
  expect((await later.list("")).map(({ key }) => key)).toEqual(["a"]);
});

test("a directory that does not exist, or is a file, is an error, and is not created", async () => {
  using directory = makeDirectory();
  const storage = createDirectoryStorage(directory.at("none"), timeoutMs);
  for (const [action, call] of [
    ["write to", () => storage.put("a/b", bytes("one"))],
    ["list", () => storage.list("")],
    ["read", () => storage.get("a")],
  ] as const) {
    const message = `Cannot ${action} file://${directory.at("none")}: the directory does not exist`;
    await expectRejection(call(), "operator", message);
  }
  expect(readdirSync(directory.path)).toEqual([]);
  await open(directory).put("a", bytes("one"));
  const inFile = open(directory).put("a/b", bytes("one"));
  await expectRejection(inFile, "operator", /: it is not a directory$/);
});

test("a link in the directory is an error, and leads to nothing that is read or changed", async () => {
  using directory = makeDirectory();
  using elsewhere = makeDirectory();
  writeFileSync(elsewhere.at("b"), "one");
  utimesSync(elsewhere.at("b"), 0, 0);
  symlinkSync(elsewhere.path, directory.at("a"));
  symlinkSync(elsewhere.at("b"), directory.at("c"));
  const { get, list, put, remove } = open(directory);
  for (const call of [
    () => get("a/b"),
    () => get("c"),
    () => list("a/"),
    () => put("a/d", bytes("two")),
    () => remove(["a/b"]),
  ])
    await expectRejection(call(), "operator", /\/[ac] is a symbolic link: move it away$/);
  symlinkSync(elsewhere.path, directory.at("~partial"));
  await expectRejection(open(directory).put("e", bytes("two")), "operator", /~partial is a/);
  expect(readdirSync(elsewhere.path)).toEqual(["b"]);
});
