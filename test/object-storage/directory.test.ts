import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { createDirectoryStorage } from "../../src/object-storage/directory.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { bytes, objectStorageContract } from "./contract.ts";

const timeoutMs = 20_000;

function open(directory: TemporaryDirectory) {
  return openStorage(`file://${directory.path}`, {}, timeoutMs);
}

describe("a directory", () => {
  objectStorageContract(async () => {
    const directory = makeDirectory();
    return {
      storage: open(directory),
      other: open(directory),
      [Symbol.asyncDispose]: async () => directory[Symbol.dispose](),
    };
  });

  test("no empty directories are left", async () => {
    using directory = makeDirectory();
    const storage = open(directory);
    for (const key of ["a/b/c/1", "a/b/c/2", "a/d/1"]) await storage.put(key, bytes("one"));
    await storage.remove(["a/b/c/1"]);
    expect(readdirSync(directory.at("a/b/c"))).toEqual(["2"]);
    await storage.remove(["a/b/c/2"]);
    expect(readdirSync(directory.at("a"))).toEqual(["d"]);
    await storage.remove(["a/d/1", "a/d/2"]);
    expect(readdirSync(directory.path)).toEqual(["~partial"]);
  });

  test("files are complete and readable only by their owner", async () => {
    using directory = makeDirectory();
    const storage = open(directory);
    await storage.put("a/b", bytes("one"));
    await storage.create("a/c", bytes("one"));
    expect(statSync(directory.at("a/b")).mode & 0o777).toBe(0o600);
    expect(statSync(directory.at("a/c")).mode & 0o777).toBe(0o600);
    expect(statSync(directory.at("a")).mode & 0o777).toBe(0o700);
    expect(readdirSync(directory.at("~partial"))).toEqual([]);
  });

  test("partial files of a process that has died are deleted after an hour, and never listed", async () => {
    using directory = makeDirectory();
    mkdirSync(directory.at("~partial"));
    for (const name of ["old", "new"]) writeFileSync(directory.at(`~partial/${name}`), "x");
    const hourAgo = Date.now() / 1000 - 3_700;
    utimesSync(directory.at("~partial/old"), hourAgo, hourAgo);
    const storage = open(directory);
    await storage.put("a", bytes("one"));
    expect(readdirSync(directory.at("~partial"))).toEqual(["new"]);
    expect((await storage.list("")).map(({ key }) => key)).toEqual(["a"]);
  });

  test("a directory that does not exist is an error, and is not created", async () => {
    using directory = makeDirectory();
    const storage = createDirectoryStorage({ path: directory.at("none"), timeoutMs });
    const problem = `${directory.at("none")}: the directory does not exist`;
    await expectRejection(
      storage.put("a/b", bytes("one")),
      "operator",
      `Cannot write to file://${problem}`,
    );
    await expectRejection(storage.list(""), "operator", `Cannot list file://${problem}`);
    await expectRejection(storage.get("a"), "operator", `Cannot read file://${problem}`);
    expect(readdirSync(directory.path)).toEqual([]);
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

  test("a file in place of a directory is an error for the operator", async () => {
    using directory = makeDirectory();
    const storage = open(directory);
    await storage.put("a", bytes("one"));
    await expectRejection(storage.put("a/b", bytes("one")), "operator", /: it is not a directory$/);
  });
});
