// Two machines and a bucket: writes go on at the other machine, each is done once, and nothing acknowledged is lost.
import { describe, expect, test } from "bun:test";
import { readdirSync, rmSync, symlinkSync } from "node:fs";
import { sendCall } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { binary, type Running, runBinary } from "../support/program.ts";
import { createUser, makePlace, stop, token, until, urlOf } from "./archived-place.ts";
import { fillDisk, mountDisk } from "./disk.ts";

const CLIENTS = 16;
const TIMEOUT_MS = 180_000;

async function makePair(commit: "sync" | "async" = "sync", seconds = "3") {
  const standby = { STANDBY: "true", TAKEOVER_SECONDS: seconds, ARCHIVE_COMMIT: commit };
  const place = await makePlace(standby);
  const pathOf = (name: string) => place.at(`${name}/a.db`);
  const run = (name: string, ...args: readonly string[]) =>
    runBinary(args, { ...place.environment, DATABASE_URL: pathOf(name) });
  return {
    ...place,
    run,
    async promote(name: string) {
      const { code, stderr } = await run(name, "archive", "promote");
      expect([code, stderr]).toEqual([0, ""]);
    },
    start: (name: string) => place.start({ DATABASE_URL: pathOf(name) }),
    loseDisk: (name: string) => rmSync(place.at(name), { recursive: true, force: true }),
    setAside: (name: string) =>
      readdirSync(place.at(name)).filter((file) => /-diverged-.*Z$/.test(file)),
  };
}

type Pair = Awaited<ReturnType<typeof makePair>>;

const get = (url: string, path: string) => sendCall(url, token, "GET", path, {});

async function isPrimary(server: Running): Promise<boolean> {
  const url = await urlOf(server);
  return (await get(url, "/health?primary")).status === 200;
}

async function untilPrimary(server: Running): Promise<string> {
  while (!(await isPrimary(server))) await Bun.sleep(20);
  return urlOf(server);
}

/** Waits until the server follows, and has all of what was written before. @returns its URL */
async function untilFollowing(server: Running, users = 0): Promise<string> {
  const url = await urlOf(server);
  for (;;) {
    const { status, json } = await get(url, "/users?limit=1").catch(() => ({
      status: 0,
      json: null,
    }));
    const isStandby = (await get(url, "/health")).json?.data?.status === "standby";
    if (isStandby && status === 200 && json.meta.total >= users) return url;
    await Bun.sleep(20);
  }
}

/** Clients that repeat each write with its key at the one or the other server until it is acknowledged. */
function write(urls: () => readonly string[]) {
  let isOver = false;
  const acknowledged = new Map<string, number>();
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let count = 0; !isOver; count += 1) {
      const email = `${client}-${count}@example.com`;
      for (let attempt = client; !acknowledged.has(email); attempt += 1) {
        const url = urls()[attempt % urls().length] ?? "";
        const call = { body: { email }, headers: { "idempotency-key": email } };
        const created = await sendCall(url, token, "POST", "/users", call).catch(() => null);
        if (created?.status === 201) acknowledged.set(email, created.json.data.id);
        else await Bun.sleep(20);
      }
    }
  });
  return {
    acknowledged,
    async untilMore(count = 50) {
      const before = acknowledged.size;
      await until(() => acknowledged.size >= before + count);
    },
    async end() {
      isOver = true;
      await Promise.all(clients);
    },
  };
}

/** Expects that the server has each acknowledged write once, and that the feed from its beginning is dense. */
async function expectAll(url: string, acknowledged: ReadonlyMap<string, number>) {
  const found = new Map<string, number>();
  for (let path = "/users?limit=100"; path !== ""; ) {
    const { json, headers } = await get(url, path);
    for (const { email, id } of json.data) {
      expect(found.has(email)).toBeFalse();
      found.set(email, id);
    }
    path = /<\/api\/v1([^>]*)>; rel="next"/.exec(headers.get("link") ?? "")?.[1] ?? "";
  }
  expect(found).toEqual(new Map(acknowledged));
  const { total, first, last } = (await get(url, "/changes?limit=1")).json.meta;
  expect([total, first, last]).toEqual([acknowledged.size, 1, acknowledged.size]);
}

async function startPair(pair: Pair) {
  const first = pair.start("first");
  const firstUrl = await untilPrimary(first);
  const second = pair.start("second");
  const secondUrl = await untilFollowing(second);
  const writing = write(() => [firstUrl, secondUrl]);
  await writing.untilMore();
  const feed = (await get(secondUrl, "/changes?limit=1")).json.meta.feed;
  return { first, second, writing, feed };
}

async function feedOf(server: Running): Promise<string> {
  return (await get(await urlOf(server), "/changes?limit=1")).json.meta.feed;
}

const disk = binary === "" ? null : mountDisk(64 * 2 ** 20);

test.skipIf(disk === null)(
  "a primary whose disk is full hands over, and follows when there is room again",
  async () => {
    await using pair = await makePair();
    using place = disk ?? makeDirectory();
    symlinkSync(place.path, pair.at("first"));
    const { first, second, writing } = await startPair(pair);
    const filler = place.at("filler");
    fillDisk(filler);
    await untilPrimary(second);
    await writing.untilMore();
    expect(await isPrimary(first)).toBeFalse();
    await until(() => first.output().includes("its disk, which cannot be written"));
    rmSync(filler);
    await writing.end();
    await expectAll(await untilFollowing(first, writing.acknowledged.size), writing.acknowledged);
    await expectAll(await urlOf(second), writing.acknowledged);
  },
  TIMEOUT_MS,
);

describe.skipIf(binary === "")("with two machines in sync mode", () => {
  test.concurrent(
    "writes go on at the standby when the primary is killed and its disk is lost",
    async () => {
      await using pair = await makePair();
      const { first, second, writing, feed } = await startPair(pair);
      first.kill("SIGKILL");
      await first.ended;
      pair.loseDisk("first");
      await untilPrimary(second);
      await writing.untilMore();
      // The same command: it follows now.
      const again = pair.start("first");
      await untilFollowing(again);
      await writing.end();
      await expectAll(await untilFollowing(again, writing.acknowledged.size), writing.acknowledged);
      await expectAll(await urlOf(second), writing.acknowledged);
      expect(await feedOf(second)).toBe(feed);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "a primary that was suspended acknowledges nothing more, and follows",
    async () => {
      await using pair = await makePair();
      const { first, second, writing } = await startPair(pair);
      first.kill("SIGSTOP");
      await untilPrimary(second);
      first.kill("SIGCONT");
      await until(() => first.output().includes('"following"'));
      await writing.untilMore();
      await writing.end();
      await expectAll(await untilFollowing(first, writing.acknowledged.size), writing.acknowledged);
      expect(await isPrimary(second)).toBeTrue();
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "a promotion switches the roles there and back",
    async () => {
      await using pair = await makePair();
      const { first, second, writing, feed } = await startPair(pair);
      await pair.promote("first");
      await untilPrimary(second);
      await untilFollowing(first);
      await writing.untilMore();
      await writing.end();
      // Without writes in flight, the database of the second machine is that of the archive.
      await untilFollowing(first, writing.acknowledged.size);
      await pair.promote("second");
      await untilPrimary(first);
      await untilFollowing(second);
      await expectAll(await urlOf(first), writing.acknowledged);
      expect(await feedOf(first)).toBe(feed);
      expect(pair.setAside("second")).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "a standby serves reads with their age, rejects writes and commands that write, and continues its copy",
    async () => {
      await using pair = await makePair("sync", "30");
      const { first, second, writing } = await startPair(pair);
      await writing.end();
      const url = await untilFollowing(second, writing.acknowledged.size);
      const { headers } = await get(url, "/users?limit=1");
      expect(Number(headers.get("age"))).toBeLessThan(60);
      const rejected = await sendCall(url, token, "POST", "/users", {
        body: { email: "a@b.example" },
      });
      expect([rejected.status, rejected.headers.get("retry-after")]).toEqual([503, "2"]);
      const created = await pair.run("second", "token", "create", "shop");
      expect([created.code, created.stderr]).toEqual([
        1,
        expect.stringContaining("copy of a standby"),
      ]);
      await stop(second);
      const again = pair.start("second");
      await untilFollowing(again, writing.acknowledged.size);
      expect(again.output()).not.toContain('"archive restored"');
      // A restart of the primary is no take-over, however busy this machine is.
      await stop(first);
      await untilPrimary(pair.start("first"));
      await until(() => (again.output().match(/"following"/g) ?? []).length === 2);
      expect(again.output()).not.toContain('"taking over"');
    },
    TIMEOUT_MS,
  );
});

test.skipIf(binary === "")(
  "a standby in async mode takes over when it is promoted, with a new feed, and what diverged is kept",
  async () => {
    await using pair = await makePair("async");
    const { first, second, writing, feed } = await startPair(pair);
    await writing.end();
    await untilFollowing(second, writing.acknowledged.size);
    pair.storage.misbehave = ({ operation }) => (operation === "put" ? { do: "stall" } : null);
    expect((await createUser(await urlOf(first), "late@example.com")).status).toBe(201);
    first.kill("SIGSTOP");
    pair.storage.misbehave = () => null;
    await pair.promote("second");
    await expectAll(await untilPrimary(second), writing.acknowledged);
    expect(await feedOf(second)).not.toBe(feed);
    first.kill("SIGCONT");
    await expectAll(await untilFollowing(first), writing.acknowledged);
    const [kept = ""] = pair.setAside("first");
    const changes = await runBinary(["changes", "--database-url", pair.at(`first/${kept}`)]);
    expect(changes.stdout.trim().split("\n")).toHaveLength(writing.acknowledged.size + 1);
  },
  TIMEOUT_MS,
);
