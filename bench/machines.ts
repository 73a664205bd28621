/** Servers with a bucket in this process, the way of each to it, and a client that remembers what was acknowledged. */
import { closeSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { newToken } from "../src/domain/token.ts";
import { LISTENING } from "../test/support/program.ts";

const token = newToken();

/** @returns the first request of S3 in the bytes; `null` if it is not complete */
function parse(received: Buffer) {
  const end = received.indexOf("\r\n\r\n") + 4;
  const head = received.toString("latin1", 0, end);
  const body = received.subarray(end);
  if (end < 4 || body.length < Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0))
    return null;
  const [method = "", target = ""] = head.split(" ", 2);
  const { pathname, searchParams: query } = new URL(target, "http://host");
  const key = decodeURIComponent(pathname).replace(/^\/bucket\/?/, "");
  return { method, key, query, isCreate: /^if-none-match:/im.test(head), body };
}

type Call = NonNullable<ReturnType<typeof parse>>;

/** What the server uses of S3, without a look at signatures, so that rounds leave the cores to the servers. */
function perform(objects: Map<string, Buffer>, { method, key, query, isCreate, body }: Call) {
  if (key === "") {
    const start = query.get("continuation-token") ?? query.get("start-after") ?? "";
    const prefix = query.get("prefix") ?? "";
    const found = [...objects.keys()].filter((each) => each.startsWith(prefix) && each > start);
    const page = found.sort().slice(0, Number(query.get("max-keys") ?? 1000));
    const isCut = page.length < found.length;
    const list = page.map((each) => `<Key>${each}</Key><Size>${objects.get(each)?.length}</Size>`);
    const contents = list.map((each) => `<Contents>${each}</Contents>`).join("");
    const next = isCut ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : "";
    return `<ListBucketResult><IsTruncated>${isCut}</IsTruncated>${next}${contents}</ListBucketResult>`;
  }
  const present = objects.get(key);
  if (method === "PUT" && isCreate && present) return { status: 412, code: "PreconditionFailed" };
  if (method === "PUT") objects.set(key, body);
  if (method === "DELETE") objects.delete(key);
  return method === "GET" ? (present ?? { status: 404, code: "NoSuchKey" }) : "";
}

/** What is cut off arrives late, when that ends, is lost then, with its connection, or is refused by closing that. */
const fates = ["late", "lost", "refused"] as const;
export const fateOf = (index: number, count = 3) => fates[index % count] ?? "late";

interface Cuts {
  readonly requests?: (typeof fates)[number];
  readonly answers?: (typeof fates)[number];
}

/** The way of one machine to the bucket. @param delayMs of a round trip */
export async function openLink(objects: Map<string, Buffer>, delayMs: number) {
  let cuts: Cuts = {};
  let healed = Promise.withResolvers<void>();
  const link = {
    port: 0,
    /** Part of the requests that fail: before they are done, by an answer or without one, or afterwards. */
    errors: 0,
    onCall: (_call: Call): void => {},
    cut(next: Cuts) {
      cuts = next;
    },
    heal() {
      cuts = {};
      healed.resolve();
      healed = Promise.withResolvers();
    },
  };
  async function arrives(direction: "requests" | "answers"): Promise<boolean> {
    if (delayMs > 0) await Bun.sleep(delayMs / 2);
    const { [direction]: fate } = cuts;
    if (fate === "late" || fate === "lost") await healed.promise;
    return fate === undefined || fate === "late";
  }
  async function answer(socket: Socket, call: Call): Promise<void> {
    const fault = Math.random() < link.errors ? Math.floor(Math.random() * 3) : null;
    if (!(await arrives("requests")) || fault === 0) return void socket.destroy();
    link.onCall(call);
    const reply = fault === 1 ? { status: 503, code: "SlowDown" } : perform(objects, call);
    if (!(await arrives("answers")) || fault === 2) return void socket.destroy();
    const isError = typeof reply === "object" && "code" in reply;
    const bytes = isError ? Buffer.from(`<Code>${reply.code}</Code>`) : Buffer.from(reply);
    const head = `HTTP/1.1 ${isError ? reply.status : 200} .\r\netag: "1"`;
    socket.write(`${head}\r\ncontent-length: ${bytes.length}\r\n\r\n`);
    if (bytes.length > 0) socket.write(bytes);
  }
  const server = createServer({ noDelay: true }, (socket) => {
    let parts: Buffer[] = [];
    socket.on("error", () => socket.destroy());
    socket.on("data", (data: Buffer) => {
      parts.push(data);
      const call = parse(parts.length === 1 ? data : Buffer.concat(parts));
      if (call === null) return;
      parts = [];
      void answer(socket, call);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  link.port = (server.address() as AddressInfo).port;
  return link;
}

type Link = Awaited<ReturnType<typeof openLink>>;

export const RESTART_MS = 1000;

/** A server that starts again after a second when it has ended, unless its machine is down. Its logs are in `place`. */
export function makeMachine(
  binary: string,
  place: string,
  name: string,
  link: Link,
  settings: Readonly<Record<string, string>>,
) {
  const directory = join(place, name);
  mkdirSync(directory);
  let starts = 0;
  let child: Bun.Subprocess | null = null;
  const machine = {
    name,
    link,
    directory,
    environment: {
      S3_ACCESS_KEY_ID: "key",
      S3_SECRET_ACCESS_KEY: "secret",
      S3_ENDPOINT: `http://127.0.0.1:${link.port}`,
      ARCHIVE_URL: "s3://bucket",
      ARCHIVE_COMMIT: "sync",
      DATABASE_URL: join(directory, "a.db"),
      API_TOKEN: token,
      PORT: "0",
      ...settings,
    },
    /** Where it listens, or did last. */
    url: "",
    isDown: true,
    /** How it has ended although its machine was not down. */
    exits: [] as string[],
    log: () => join(place, `${name}-${starts}.log`),
    pid: () => child?.pid ?? 0,
    start() {
      machine.isDown = false;
      starts += 1;
      const log = openSync(machine.log(), "a");
      const options = { env: machine.environment, cwd: place, stdout: log, stderr: log };
      const started = Bun.spawn([binary, "serve"], options);
      closeSync(log);
      child = started;
      void machine.watch(started, machine.log());
    },
    async watch(started: Bun.Subprocess, log: string): Promise<void> {
      for (let found = ""; found === "" && started.exitCode === null; ) {
        if (started.signalCode !== null) break;
        await Bun.sleep(20);
        found = LISTENING.exec(await Bun.file(log).text())?.[1] ?? "";
        machine.url = found || machine.url;
      }
      const code = await started.exited;
      if (machine.isDown || child !== started) return;
      const last = (await Bun.file(log).text()).trimEnd().split("\n").at(-1) ?? "";
      machine.exits.push(`${name} ${code}: ${last.slice(0, 300)}`);
      await Bun.sleep(RESTART_MS);
      if (!machine.isDown && child === started) machine.start();
    },
    signal: (signal: NodeJS.Signals) => child?.kill(signal),
    /** The machine is down then, until `start`. */
    async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
      machine.isDown = true;
      child?.kill(signal);
      await child?.exited;
    },
    loseData() {
      for (const entry of readdirSync(directory)) rmSync(join(directory, entry), { force: true });
    },
  };
  process.on("exit", () => child?.kill("SIGKILL"));
  return machine;
}

export type Machine = ReturnType<typeof makeMachine>;

interface Answer {
  /** 0 if there is no answer. */
  readonly status: number;
  readonly age: number;
  readonly record: { readonly id?: number; readonly status?: string };
  readonly list: readonly { readonly id: number; readonly metadata: { readonly key?: string } }[];
}

export async function ask(
  { url }: Machine,
  path: string,
  write: { readonly key: string; readonly body: object } | null = null,
  timeoutMs = 5_000,
): Promise<Answer> {
  const headers = new Headers({ authorization: `Bearer ${token}` });
  if (write) headers.set("content-type", "application/json");
  if (write) headers.set("idempotency-key", write.key);
  const written = write && { method: "POST", body: JSON.stringify(write.body) };
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const response = await fetch(`${url}/api/v1${path}`, { headers, ...written, signal });
    const text = await response.text();
    const data = text.startsWith("{") ? (JSON.parse(text).data ?? {}) : {};
    const list = Array.isArray(data) ? data : [];
    return {
      status: response.status,
      age: Number(response.headers.get("age")),
      record: data,
      list,
    };
  } catch {
    return { status: 0, age: 0, record: {}, list: [] };
  }
}

export async function until(
  condition: () => boolean | Promise<boolean>,
  capMs: number,
  pauseMs = 20,
) {
  const endMs = performance.now() + capMs;
  while (!(await condition())) {
    if (performance.now() > endMs) return false;
    await Bun.sleep(pauseMs);
  }
  return true;
}

export const isPrimary = async (machine: Machine) =>
  (await ask(machine, "/health?primary")).status === 200;

export async function isFollowing(machine: Machine): Promise<boolean> {
  const { record } = await ask(machine, "/health");
  return record.status === "standby" && (await ask(machine, "/orders?limit=1")).status === 200;
}

/** Writes a user with one key wherever that is possible. @throws {Error} if it is not */
export async function createUser(machines: readonly Machine[]): Promise<number> {
  const write = { key: "user", body: { email: "a@example.com" } };
  for (const endMs = performance.now() + 120_000; performance.now() < endMs; await Bun.sleep(50)) {
    const answers = await Promise.all(machines.map((machine) => ask(machine, "/users", write)));
    const id = answers.find(({ status }) => status === 201)?.record.id;
    if (id !== undefined) return id;
  }
  throw new Error(`no server acknowledges: ${machines.map((machine) => machine.log())}`);
}

/** After that, a request is sent again, while the first one may still be answered. */
const PATIENCE_MS = 2_000;
const ABORT_MS = 45_000;

/** @param rate writes per second; `null` for as fast as the clients can */
export function startClient(
  machines: readonly Machine[],
  userId: number,
  clients: number,
  rate: number | null,
) {
  const last = new Map<Machine, number>();
  const client = {
    rate,
    /** Ids that were acknowledged, by key: one each. */
    acknowledged: new Map<string, Set<number>>(),
    /** When they were, by id. */
    times: [] as number[],
    statuses: {} as Record<number, number>,
    lastMs: (machine: Machine) => last.get(machine) ?? 0,
    /** When another machine has acknowledged a write since `beginFault`, if one has. */
    firstMs: null as number | null,
    beginFault(machine: Machine | null) {
      faulty = machine;
      client.firstMs = null;
    },
    async end(): Promise<void> {
      isOver = true;
      await Promise.race([Promise.all(all), Bun.sleep(5_000)]);
    },
  };
  let faulty: Machine | null | undefined;
  let target = machines[0];
  let switched = Promise.withResolvers<void>();
  let isOver = false;
  let count = 0;
  let slotMs = performance.now();
  const newKey = () => `key-${count++}`;

  async function send(machine: Machine, key: string): Promise<boolean> {
    const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];
    const body = { user_id: userId, currency: "EUR", items, metadata: { key } };
    const { status, record } = await ask(machine, "/orders", { key, body }, ABORT_MS);
    client.statuses[status] = (client.statuses[status] ?? 0) + 1;
    if (status !== 201 || record.id === undefined) return false;
    const nowMs = performance.now();
    client.acknowledged.getOrInsertComputed(key, () => new Set()).add(record.id);
    client.times[record.id] ??= nowMs;
    last.set(machine, nowMs);
    if (faulty !== undefined && machine !== faulty) client.firstMs ??= nowMs;
    return true;
  }
  /** @returns whether it is acknowledged; `null` if there is no answer yet */
  const attempt = (sent: Promise<boolean>) =>
    Promise.race([sent, Bun.sleep(PATIENCE_MS).then(() => null)]);

  async function work(): Promise<void> {
    while (!isOver) {
      slotMs = Math.max(slotMs + 1000 / (client.rate ?? Infinity), performance.now() - 100);
      if (client.rate !== null) await Bun.sleep(Math.max(0, slotMs - performance.now()));
      for (const key = newKey(); !isOver && target && !client.acknowledged.has(key); ) {
        const { promise } = switched;
        const sent = send(target, key);
        const isDone = await attempt(sent);
        if (isDone === false) await Promise.race([promise, Bun.sleep(1_000)]);
        else if (isDone === null) await Promise.race([sent, promise, Bun.sleep(PATIENCE_MS)]);
      }
    }
  }
  /** Writes to one machine all the time: which acknowledges gets the writes of a target that is silent. */
  async function scout(machine: Machine): Promise<void> {
    for (let key = newKey(); !isOver; await Bun.sleep(50)) {
      if ((await attempt(send(machine, key))) !== true) continue;
      key = newKey();
      if (!target || machine === target || performance.now() - client.lastMs(target) < 500)
        continue;
      target = machine;
      switched.resolve();
      switched = Promise.withResolvers();
    }
  }
  const all = [...machines.map(scout), ...Array.from({ length: clients }, work)];
  return client;
}

export type Client = ReturnType<typeof startClient>;

/** @returns the ids of all orders by key */
export async function lookUp(machine: Machine): Promise<Map<string, number[]>> {
  const found = new Map<string, number[]>();
  for (let after = 0, failures = 0; failures < 60; ) {
    const { status, list } = await ask(machine, `/orders?limit=1000&after=${after}`, null, 30_000);
    if (status === 200 && list.length === 0) return found;
    failures = status === 200 ? 0 : failures + 1;
    if (status !== 200) await Bun.sleep(500);
    for (const { id, metadata } of list)
      found.getOrInsertComputed(metadata.key ?? "", () => []).push(id);
    after = list.at(-1)?.id ?? after;
  }
  throw new Error(`${machine.name} does not list its orders`);
}
