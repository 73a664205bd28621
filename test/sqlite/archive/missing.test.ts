// What a server does that has an archive and no database.
import { expect, test } from "bun:test";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { ArchiveSettings } from "../../../src/domain/archive.ts";
import { ensureDatabase } from "../../../src/sqlite/archive/follow/prepare.ts";
import { prefixes } from "../../../src/sqlite/archive/keys.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { type Archive, adviceOf, defaults, filesOf, makeArchive, makeClock } from "./archived.ts";

function ensure(
  { storage, path }: Archive,
  restore: ArchiveSettings["restore"],
  onSleep = () => {},
) {
  return ensureDatabase({
    storage,
    files: filesOf(path),
    ...defaults,
    restore,
    machine: makeClock(onSleep),
    signal: new AbortController().signal,
    log() {},
  });
}

async function makeLost(): Promise<Archive> {
  const archive = makeArchive();
  await archive.serve(1, { path: archive.at("lost.db") });
  return archive;
}

const noBase = /^it has objects, but no complete base/;
const missing = /^it has a database, but \S+ is missing: run `user-api restore /;
const damaged = /^the archive is damaged: /;
/** Without them, its database cannot be restored. */
const needed = [prefixes.bases, prefixes.chunks, prefixes.log, prefixes.generations];

test("while anything of an archive is left, a database is restored from it if all is there, and none is created", async () => {
  using archive = await makeLost();
  const { storage, path } = archive;
  const objects = await Promise.all(
    (await archive.keys("")).map(async (key) => [key, await archive.body(key)] as const),
  );
  for (let kinds = 1; kinds < 2 ** 5; kinds += 1) {
    const left = Object.values(prefixes).filter((_, at) => kinds & (1 << at));
    await storage.remove(objects.map(([key]) => key));
    for (const [key, body] of objects)
      if (left.some((prefix) => key.startsWith(prefix))) await storage.put(key, body);
    const isWhole = needed.every((prefix) => left.includes(prefix));
    const hasBase = left.includes(prefixes.bases);
    await expectRejection(ensure(archive, "never"), "operator", hasBase ? missing : noBase);
    const restored = ensure(archive, "if-missing");
    if (isWhole) await restored;
    else await expectRejection(restored, "operator", hasBase ? damaged : noBase);
    expect(existsSync(path)).toBe(isWhole);
    rmSync(path, { force: true });
  }
});

test("a database is not restored from the log of a killed server that lacks a segment", async () => {
  using archive = makeArchive();
  await archive.serve(4, { path: archive.at("lost.db") });
  const [lost = "", , closed = ""] = (await archive.keys("log/")).slice(-3);
  await archive.storage.remove([closed]);
  const problem = await archive.lose(lost);
  // The first one seals the log.
  for (let start = 0; start < 2; start += 1) await adviceOf(ensure(archive, "if-missing"), problem);
});

test("a database is kept that appears while the archive is waited for", async () => {
  using archive = await makeLost();
  // Another server, which was killed.
  await archive.storage.remove((await archive.keys("log/")).slice(-1));
  writeFileSync(archive.path, "");
  const required = ensure(archive, "if-missing", () => writeFileSync(archive.path, "a database"));
  await expectRejection(required, "operator", "the file already exists");
  expect(readFileSync(archive.path, "utf8")).toBe("a database");
});
