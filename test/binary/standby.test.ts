// Two machines and a bucket: writes go on at the other machine, each is done once, and nothing acknowledged is lost.
import { expect } from "bun:test";
import { readdirSync } from "node:fs";
import { sendCall } from "../http/server.ts";
import { type Running, runBinary } from "../support/program.ts";
import { createUser, makePlace, stop, token, until, urlOf } from "./archived-place.ts";
import { failureOf, test } from "./on-binary.ts";

const CLIENTS = 4;

async function makePair(commit: "sync" | "async" = "sync", seconds = "3") {
  const standby = { STANDBY: "true", TAKEOVER_SECONDS: seconds, ARCHIVE_COMMIT: commit };
  const place = await makePlace(standby);
  const pathOf = (name: string) => place.at(`${name}/a.db`);
  return {
    ...place,
    run: (name: string, ...args: readonly string[]) =>
      runBinary(args, { ...place.environment, DATABASE_URL: pathOf(name) }),
    start: (name: string) => place.start({ DATABASE_URL: pathOf(name) }),
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
    const page = await get(url, "/users?limit=1").catch(() => null);
    const isStandby = (await get(url, "/health")).json?.data?.status === "standby";
    if (isStandby && page?.status === 200 && page.json.meta.total >= users) return url;
    await Bun.sleep(20);
  }
}

/** Clients that repeat each write with its key at the one or the other server until it is acknowledged. */
function write(urls: readonly string[]) {
  let isOver = false;
  const acknowledged = new Map<string, number>();
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let count = 0; !isOver; count += 1) {
      const email = `${client}-${count}@example.com`;
      for (let attempt = client; !acknowledged.has(email); attempt += 1) {
        const url = urls[attempt % urls.length] ?? "";
        const call = { body: { email }, headers: { "idempotency-key": email } };
        const created = await sendCall(url, token, "POST", "/users", call).catch(() => null);
        if (created?.status === 201) acknowledged.set(email, created.json.data.id);
        else await Bun.sleep(50);
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
  const writing = write([firstUrl, secondUrl]);
  await writing.untilMore();
  return { first, second, writing, feed: await feedOf(second) };
}

/** @returns the lines of the log that say whether the server writes, and after which silence there is a take-over */
function rolesOf(server: Running): string[] {
  const lines = server
    .output()
    .matchAll(/"event":"(primary|following)".*"takeover_seconds":(\d+)/g);
  // It follows each log of the other server.
  return [...new Set([...lines].map(([, role, seconds]) => `${role} ${seconds}`))];
}

async function feedOf(server: Running): Promise<string> {
  return (await get(await urlOf(server), "/changes?limit=1")).json.meta.feed;
}

test("a primary that was suspended acknowledges nothing more, and follows", async () => {
  await using pair = await makePair();
  const { first, second, writing, feed } = await startPair(pair);
  first.kill("SIGSTOP");
  await untilPrimary(second);
  first.kill("SIGCONT");
  await until(() => first.output().includes('"following"'));
  await writing.untilMore();
  await writing.end();
  await expectAll(await untilFollowing(first, writing.acknowledged.size), writing.acknowledged);
  expect([await isPrimary(second), await feedOf(second)]).toEqual([true, feed]);
  expect(rolesOf(first)).toEqual(["primary 3", "following 6"]);
  expect(rolesOf(second)).toEqual(["following 3", "primary 3"]);
});

test("a standby rejects commands that write, and continues its copy", async () => {
  await using pair = await makePair("sync", "30");
  const { first, second, writing } = await startPair(pair);
  await writing.end();
  await untilFollowing(second, writing.acknowledged.size);
  const why = await failureOf(pair.run("second", "token", "create", "shop"));
  expect(why).toContain("copy of a standby");
  await stop(second);
  const again = pair.start("second");
  await untilFollowing(again, writing.acknowledged.size);
  expect(again.output()).not.toContain('"archive restored"');
  // A restart of the primary is no take-over, however busy this machine is.
  await stop(first);
  await untilPrimary(pair.start("first"));
  await until(() => (again.output().match(/"following"/g) ?? []).length === 2);
  expect(again.output()).not.toContain('"taking over"');
});

test("a standby in async mode takes over when it is promoted, with a new feed, and what diverged is kept", async () => {
  await using pair = await makePair("async");
  const { first, second, writing, feed } = await startPair(pair);
  await writing.end();
  await untilFollowing(second, writing.acknowledged.size);
  let isStalled = false;
  pair.storage.misbehave = ({ operation, key }) => {
    if (operation !== "put" || !key.startsWith("log/")) return null;
    isStalled = true;
    return { do: "stall" };
  };
  expect((await createUser(await urlOf(first), "late@example.com")).status).toBe(201);
  await until(() => isStalled);
  first.kill("SIGSTOP");
  pair.storage.misbehave = () => null;
  expect((await pair.run("second", "archive", "promote")).code).toBe(0);
  await expectAll(await untilPrimary(second), writing.acknowledged);
  expect(await feedOf(second)).not.toBe(feed);
  first.kill("SIGCONT");
  await expectAll(await untilFollowing(first), writing.acknowledged);
  const kept = readdirSync(pair.at("first")).find((file) => /-diverged-.*Z$/.test(file));
  const changes = await runBinary(["changes", "--database-url", pair.at(`first/${kept}`)]);
  expect(changes.stdout.trim().split("\n")).toHaveLength(writing.acknowledged.size + 1);
});
