import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { runSql } from "../sqlite/open-database.ts";
import { withStore } from "../support/open-store.ts";
import { makeRandom } from "../support/random.ts";
import { runHere } from "../support/run-here.ts";
import { type Received, secrets, startReceiver } from "../support/webhook-receiver.ts";
import { createToken, failed, fill, type Harness, makeHarness, reported } from "./harness.ts";

/** Pauses take no time, and a request lasts too long when the test says so. */
function makeClock() {
  let passedMs = 0;
  const timers = new Map<() => void, number>();
  const pauses: number[] = [];
  const nowMs = () => Date.UTC(2026, 10, 20) + passedMs;
  async function sleep(ms: number): Promise<void> {
    pauses.push(ms / 1000);
    passedMs += ms;
  }
  function every(ms: number, work: () => void): Disposable {
    timers.set(work, ms);
    return { [Symbol.dispose]: () => timers.delete(work) };
  }
  return { nowMs, monotonicMs: nowMs, sleep, every, pauses, timers };
}

type Reply = (message: Received) => Response | number | null;

/** A server with changes, and a receiver. */
async function openWorld(changes: number, reply: Reply = () => 204) {
  const world = makeHarness();
  const clock = makeClock();
  const server = await world.serve();
  await fill(world, changes);
  let [last, stop] = [0, () => {}];
  const receiver = startReceiver((message) => {
    const status = reply(message);
    if (status === 204 && message.data.id === last) stop();
    return status;
  }, clock.nowMs);
  const path = world.at("position");
  await Bun.write(world.at("token"), await createToken(world, "feed", "--scope", "read"));
  await Bun.write(world.at("secret"), secrets.join("\r\n"));
  const files = ["--token-file", world.at("token"), "--secret-file", world.at("secret")];
  const fixed = ["--from", server.url, "--to", receiver.url, "--position", path, ...files];
  const begin = (...args: string[]) => runHere(["deliver", ...fixed, ...args], { clock });
  return {
    ...{ world, clock, receiver, path, begin },
    /** A signal arrives while this change is being delivered. */
    runTo(change: number, ...args: string[]) {
      const running = begin(...args);
      [last, stop] = [change, () => void running.stop()];
      return running.ended;
    },
    position: async () => (await Bun.file(path).text()).replace(/^\w+-(\d+)\n$/, "$1"),
    async [Symbol.asyncDispose]() {
      receiver[Symbol.dispose]();
      await server.stop();
      world[Symbol.dispose]();
    },
  };
}

const upTo = (last: number) => Array.from({ length: last }, (_, at) => 1 + at);

test("deliver sends each change in order, with valid signatures, until it is accepted, when the receiver fails, hangs and redirects", async () => {
  const random = makeRandom(7);
  const timeouts = new Set<number>();
  function hang(): null {
    for (const [end, ms] of world.clock.timers) {
      timeouts.add(ms);
      end();
    }
    return null;
  }
  const failures = [() => 500, () => Response.redirect("/"), hang] as const;
  const reply = () => (random(10) < 3 ? (failures[random(3)]?.() ?? null) : 204);
  await using world = await openWorld(99, reply);
  const { code, stderr } = await world.runTo(99, "--start", "0", "--include", "record");
  const { ids, accepted, invalid, all } = world.receiver;
  expect([code, ids(), invalid, await world.position()]).toEqual([0, upTo(99), [], "99"]);
  const [first] = accepted;
  const createdAt = "2026-11-20T18:57:03.120Z";
  const message = { type: "user.created", timestamp: createdAt, data: expect.anything() };
  expect(first).toEqual({ id: expect.stringMatching(/^[a-z0-9]+-1$/), attempt: 1, ...message });
  expect(first?.data).toMatchObject({
    id: 1,
    version: 1,
    created_at: createdAt,
    record: { metadata: {} },
  });
  const { pauses } = world.clock;
  expect([pauses.length, timeouts]).toEqual([all.length - 99, new Set([30_000])]);
  for (const [at, pause] of pauses.entries())
    expect([1, 2 * (pauses[at - 1] ?? 0)]).toContain(pause);
  const reason = "(?:status 500|status 302|no response in 30 s)";
  const line = `Cannot deliver change (\\d+): ${reason}; trying again; --skip \\1 steps over it`;
  const lines = new RegExp(`(?:${line}\nContinued after \\d failures?\n)`, "g");
  expect(stderr.match(lines)?.length).toBe(pauses.filter((pause) => pause === 1).length);
  expect(stderr.replace(lines, "")).toBe("");
});

test("deliver waits up to five minutes, or up to an hour if it is asked to, and reports a failure once an hour", async () => {
  const asked = ["7", "Fri, 20 Nov 2026 00:01:10 GMT", "999999", "soon"];
  await using world = await openWorld(1, ({ attempt }) => {
    const headers = { "retry-after": asked[attempt - 1] ?? "" };
    return attempt <= 16 ? new Response("hidden", { status: 503, headers }) : 204;
  });
  const { code, stderr } = await world.runTo(1, "--start", "0");
  const later = [8, 16, 32, 64, 128, 256, ...Array(7).fill(300)];
  expect(world.clock.pauses).toEqual([7, 63, 3600, ...later]);
  const line = "Cannot deliver change 1: status 503; trying again; --skip 1 steps over it\n";
  const wait = "Waiting for 3,600 seconds, as the server asks\n";
  expect([code, stderr]).toEqual([0, `${line}${wait}${line}Continued after 16 failures\n`]);
});

test("deliver needs its position, creates it with --start, and is the only process that uses it", async () => {
  await using world = await openWorld(3);
  const cannot = (problem: string) => failed(`Cannot use ${world.path}: ${problem}`);
  expect(await world.begin().ended).toEqual(cannot("no such file; --start creates it"));
  const running = world.runTo(4, "--start", "now");
  while (!existsSync(world.path)) await Bun.sleep(1);
  expect(await world.begin().ended).toEqual(cannot("another process has locked it"));
  await fill(world.world, 1);
  expect(await running).toEqual(reported());
  expect([world.receiver.ids(), await world.position()]).toEqual([[4], "4"]);
  const again = await world.begin("--start", "0").ended;
  expect(again).toEqual(cannot("it exists; leave out --start"));
});

test("deliver moves its position past changes of other types, and skips the next one with --skip", async () => {
  await using world = await openWorld(4, ({ data }) => (data.id === 5 ? 500 : 204));
  const running = world.begin("--start", "0", "--types", "order.created", "user.deleted");
  while ((await world.position().catch(() => "")) !== "4") await Bun.sleep(1);
  expect(await running.stop()).toEqual(reported());
  await fill(world.world, 2);
  const refused = await world.begin("--skip", "6").ended;
  expect(refused).toEqual(failed("Cannot skip 6: the next change is 5"));
  const skipped = await world.runTo(6, "--types", "user.created", "--skip", "5");
  expect([skipped, world.receiver.ids(), await world.position()]).toEqual([reported(), [6], "6"]);
});

const cannotRead = "Cannot read the changes: status";

test.each<[what: string, line: string, end: (world: Harness) => unknown]>([
  ["the token is revoked", `${cannotRead} 401`, (world) => world.run("token", "revoke", "feed")],
  [
    "the token lacks a scope",
    `${cannotRead} 403 this token lacks the scope orders:read`,
    async (world) =>
      Bun.write(world.at("token"), await createToken(world, "b", "--scope", "users:read")),
  ],
  [
    "changes have expired",
    `${cannotRead} 410 changes before 4 are no longer kept: synchronize again`,
    (world) => withStore(world.path, ({ changes }) => changes.deleteExpired(new Date(8.64e15))),
  ],
  [
    "a new feed has begun",
    `${cannotRead} 410 the feed first has ended: synchronize again`,
    (world) => runSql(world.path, "update feed set name = 'other'"),
  ],
  ["the receiver responds with 410", "Cannot deliver change 2: status 410", () => {}],
])("deliver exits with 1 and one line when %s", async (_, line, end) => {
  await using world = await openWorld(2, ({ data }) => (data.id === 1 ? 204 : 410));
  runSql(world.world.path, "update feed set name = 'first'");
  expect(await world.runTo(1, "--start", "0")).toEqual(reported());
  await fill(world.world, 2);
  await end(world.world);
  expect(await world.begin().ended).toEqual(failed(line));
  expect([world.receiver.ids(), await world.position()]).toEqual([[1], "1"]);
});

test("deliver repeats a request for changes, without a redirect, until the response is a page that follows", async () => {
  await using world = await openWorld(0);
  const meta = { feed: "a", last: 1 };
  const change = { id: 1, type: "user.created", created_at: "2026-11-20T18:57:03.120Z" };
  const responses = [
    Response.redirect("/elsewhere"),
    new Response("<!doctype html>"),
    Response.json({ data: [{ ...change, id: 2 }], meta }),
    Response.json({ data: [null], meta: { feed: "a", last: 1 } }),
    new Response("{".repeat(9 * 2 ** 20)),
    Response.json({ data: [change], meta }),
  ];
  const asked = new Set<string | null>();
  using server = Bun.serve({
    port: 0,
    fetch({ url, headers }) {
      asked.add(headers.get("authorization") && new URL(url).pathname);
      return responses.shift() ?? new Response();
    },
  });
  await Bun.write(world.path, "a-0\n");
  const { code, stderr } = await world.runTo(1, "--from", `${server.url.href}proxied/`);
  const line = "Cannot read the changes: status 302; trying again\n";
  expect([code, stderr]).toEqual([0, `${line}Continued after 5 failures\n`]);
  expect(asked).toEqual(new Set(["/proxied/api/v1/changes"]));
});

test("deliver says why there is no response, without the URL, which can contain a secret, and needs no body", async () => {
  await using world = await openWorld(1);
  let asked = 0;
  const answers = [
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
  ];
  const socket = {
    data(client: Bun.Socket) {
      if (asked === 1) void running.stop();
      client.write(answers[asked] ?? "");
      asked += 1;
    },
  };
  using server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
  const running = world.begin("--start", "0", "--to", `http://127.0.0.1:${server.port}/hidden`);
  const { stderr } = await running.ended;
  expect(stderr).toMatch(
    /^Cannot deliver change 1: InvalidContentLength; trying again; .*\nCont.*\n$/,
  );
});

test("deliver rejects files without a token, secrets or a position, and repeats nothing of them", async () => {
  await using world = await openWorld(0);
  const [secret = ""] = secrets;
  const short = secret.replace("GBgY", "");
  const files = {
    position: ["", "1", "a.b-1"],
    secret: ["", short, secret.slice(1), `${secret}\n${secret}\n${secret}`],
    token: ["", "uat_1 2"],
  };
  for (const [name, texts] of Object.entries(files))
    for (const text of texts) {
      await Bun.write(world.world.at(name), text);
      const { code, stderr } = await world.begin().ended;
      expect([code, stderr.split(/-file| "/)[0]]).toEqual([1, `Cannot read --${name}`]);
      expect(stderr).toMatch(/: it must contain (?!.*(?:GBg|uat_)).*\n$/);
    }
});
