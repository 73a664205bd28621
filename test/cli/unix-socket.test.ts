import { expect, test } from "bun:test";
import { lstatSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createToken, failed, type Harness, lines, makeHarness } from "./harness.ts";

/** @returns the path of a socket whose process was killed */
function makeStaleSocket(world: Harness): string {
  const path = world.at("stale");
  const script = `Bun.serve({ unix: "${path}", fetch: () => new Response() });
    process.kill(process.pid, "SIGKILL");`;
  Bun.spawnSync([process.execPath, "-e", script]);
  expect(lstatSync(path).isSocket()).toBe(true);
  return path;
}

test("serve listens on a Unix socket for its owner and group, and removes it at the end", async () => {
  using world = makeHarness();
  const path = makeStaleSocket(world);
  const server = await world.serve("--host", path);
  expect(server.url).toBe(`unix:${path}`);
  expect(lstatSync(path).mode & 0o777).toBe(0o660);
  expect(await world.run("health", "--host", path)).toMatchObject({ code: 0, stdout: "ok\n" });

  const [line = "", token = ""] = /curl .*(uat_\w+).*/.exec(server.output()) ?? [];
  expect(line).toStartWith(`curl --unix-socket ${path} -H `);
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch("http://localhost/api/v1/users", { unix: path, headers });
  expect(response.status).toBe(200);

  using other = makeHarness();
  const refused = await other.run("serve", "--host", path);
  expect(refused).toEqual(failed(`Cannot listen on ${path}: the socket is in use`));
  expect((await server.stop()).code).toBe(0);
  expect(lstatSync(path, { throwIfNoEntry: false })).toBeUndefined();
  const gone = await world.run("health", "--host", path);
  expect(gone).toEqual(failed(`Cannot connect to ${path}: no such file or directory`));
});

test("large pages return 503 on a Unix socket when other clients of the token stop reading", async () => {
  using world = makeHarness();
  const path = world.at("socket");
  const metadata = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [at, "x".repeat(500)]));
  const users = Array.from({ length: 120 }, (_, at) => ({ email: `${at}@example.com`, metadata }));
  await world.feed(lines(users), "import", "users", "-");
  const token = await createToken(world, "reader", "--scope", "read");
  const server = await world.serve("--host", path);
  const headers = { authorization: `Bearer ${token}` };
  const get = (target: string, signal: AbortSignal | null = null) =>
    fetch(`http://localhost/api/v1${target}`, { unix: path, headers, signal });
  const text = await (await get("/users?limit=120")).text();
  expect(JSON.parse(text)).toMatchObject({ data: users, meta: { total: 120 } });

  const stalled = new AbortController();
  const statuses: number[] = [];
  // Each has 3 MB, of which one token may have 16 MiB.
  const stalledPages = Array.from({ length: 8 }, () => get("/users?limit=120", stalled.signal));
  for (const page of stalledPages) statuses.push((await page).status);
  expect(statuses.filter((status) => status === 200)).toHaveLength(5);
  expect(statuses.filter((status) => status === 503)).toHaveLength(3);
  expect((await get("/users?limit=9")).status).toBe(200);
  stalled.abort();
  while ((await get("/users?limit=120")).status === 503) await Bun.sleep(5);
  expect(await (await get("/users?limit=120")).text()).toBe(text);
  expect((await server.stop()).code).toBe(0);
});

/** Two connections fill the queue, and no one accepts them. */
const busy = `import socket, sys, time
server, *clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
server.bind(sys.argv[1])
server.listen(0)
clients[0].connect(sys.argv[1])
clients[1].setblocking(False)
try: clients[1].connect(sys.argv[1])
except BlockingIOError: print("full", flush=True)
time.sleep(60)`;

test("serve changes nothing when it cannot listen on a Unix socket", async () => {
  using world = makeHarness();
  const [file, link, full] = [world.at("file"), world.at("link"), world.at("full")];
  const problems: [string, string][] = [
    [file, "the file exists and is not a socket"],
    [link, "the file exists and is not a socket"],
    [full, "the socket is in use"],
    [world.at("none/socket"), "no such file or directory"],
    [`${file}/socket`, "a part of the path is not a directory"],
    [world.at("x".repeat(108)), "the file name is too long"],
  ];
  writeFileSync(file, "kept");
  symlinkSync(makeStaleSocket(world), link);
  await using server = Bun.spawn(["python3", "-c", busy, full], { stdout: "pipe" });
  await server.stdout.getReader().read();
  for (const [path, problem] of problems) {
    const outcome = await world.run("serve", "--host", path);
    expect(outcome).toEqual(failed(`Cannot listen on ${path}: ${problem}`));
  }
  expect(readFileSync(file, "utf8")).toBe("kept");
  for (const path of [full, world.at("stale")]) expect(lstatSync(path).isSocket()).toBe(true);
  expect(lstatSync(link).isSymbolicLink()).toBe(true);
});
