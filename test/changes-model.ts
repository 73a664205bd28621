/**
 * Readers of the change feed, each with connections that break, while clients change the same records through all
 * processes of a service, and processes are killed again and again. No change is missing, twice, out of order or made up.
 */
import { expect } from "bun:test";
import type { Change } from "../src/change.ts";
import { newToken } from "../src/token.ts";
import { makeDirectory } from "./directory.ts";
import { binary, runBinary, startProgram } from "./program.ts";

const WRITERS = 12;
const READERS = 3;
/** Longest time until the next process is killed. */
const KILL_MS = 1_500;
/** Clients change the newest records of each table, this many, so that most of them change at the same time. */
const CONTENDED = 8;
const IMPORTED = 300;

interface Service extends AsyncDisposable {
  readonly url: string;
  /** Kills it and starts it again, on another port. */
  kill(): Promise<void>;
}

type Environment = Readonly<Record<string, string>>;

async function startService(environment: Environment): Promise<Service> {
  const start = () => startProgram([binary, "serve"], { env: environment });
  let running = start();
  let url = (await running.listening) ?? "";
  return {
    get url() {
      return url;
    },
    async kill() {
      running.kill("SIGKILL");
      await running.ended;
      running = start();
      url = (await running.listening) ?? "";
    },
    async [Symbol.asyncDispose]() {
      running.kill("SIGTERM");
      await running.ended;
    },
  };
}

export interface World {
  readonly database: string;
  /** Number of processes. */
  readonly processes: number;
  /** Kills servers of the database and starts them again; a missing one is as if there were none. */
  readonly killDatabase?: () => Promise<void>;
  /** Called after all writes, before the changes are verified. */
  readonly settle?: () => Promise<void>;
  readonly seconds: number;
}

/** What clients know. Changes are `user 1 v2`, and `user 1 v2 deleted` for a deletion. */
interface Known {
  readonly acknowledged: Set<string>;
  /** Number of writes without a definite response, by record, or by table for new records. */
  readonly inDoubt: Map<string, number>;
  /** Number of imported users, at least and at most. */
  readonly imported: [number, number];
  /** Responses that nothing excuses. */
  readonly wrong: string[];
}

interface Client {
  readonly url: () => string;
  readonly token: string;
  readonly isOver: () => boolean;
  readonly known: Known;
}

type Row = Record<string, any>;

const pick = <Item>(items: readonly Item[]): Item | undefined =>
  items[Math.floor(Math.random() * items.length)];

function nameOf(kind: string, id: number, version: number, isDeletion: boolean): string {
  return `${kind} ${id} v${version}${isDeletion ? " deleted" : ""}`;
}

function nameOfChange({ type, record_id, version }: Change): string {
  return nameOf(type.split(".")[0] ?? "", record_id, version, type === "user.deleted");
}

function count(counts: Map<string, number>, name: string): number {
  const next = (counts.get(name) ?? 0) + 1;
  counts.set(name, next);
  return next;
}

/** @returns the record of a successful response; `null` if the request was rejected, or may have been carried out */
async function write(
  { url, token, known }: Client,
  method: string,
  path: string,
  body?: object,
): Promise<Row | null> {
  const [, table = "", id] = path.split("/");
  const kind = table.slice(0, -1);
  const headers: Row = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  // Creates with and without a key are different statements.
  if (method === "POST" && Math.random() < 0.5) headers["idempotency-key"] = crypto.randomUUID();
  const content = body === undefined ? null : JSON.stringify(body);
  try {
    const response = await fetch(`${url()}/api/v1${path}`, { method, headers, body: content });
    const { data, error } = (await response.json()) as { data: Row; error: unknown };
    const { status } = response;
    if (status === 503) throw new Error("the write may have been carried out");
    if (status >= 500) known.wrong.push(`${method} ${path}: ${status} ${error}`);
    if (status >= 300) return null;
    known.acknowledged.add(nameOf(kind, data["id"], data["version"], method === "DELETE"));
    return data;
  } catch {
    count(known.inDoubt, id === undefined ? kind : `${kind} ${id}`);
    await Bun.sleep(5);
    return null;
  }
}

/** Creates records, and changes those that all clients change. */
async function changeRecords(client: Client, users: number[], orders: number[]): Promise<void> {
  const keep = (ids: number[], row: Row | null) => {
    if (row !== null) ids.push(row["id"]);
    if (ids.length > CONTENDED) ids.shift();
  };
  const email = () => `${crypto.randomUUID()}@example.com`;
  const items = [{ sku: "A", quantity: 1, unit_price: 1 }];
  while (!client.isOver()) {
    const user = pick(users) ?? 0;
    const order = pick(orders) ?? 0;
    const turn = Math.random();
    if (turn < 0.2) keep(users, await write(client, "POST", "/users", { email: email() }));
    else if (turn < 0.3) {
      const fields = { user_id: user, currency: "EUR", items };
      keep(orders, await write(client, "POST", "/orders", fields));
    } else if (turn < 0.55) await write(client, "PATCH", `/users/${user}`, { name: email() });
    else if (turn < 0.6) await write(client, "PATCH", `/users/${user}`, {});
    else if (turn < 0.7) await write(client, "PUT", `/users/${user}`, { email: email() });
    else if (turn < 0.75) await write(client, "DELETE", `/users/${user}`);
    else if (turn < 0.8) await write(client, "PATCH", `/orders/${order}`, { status: "paid" });
    else {
      await write(client, "PATCH", `/orders/${order}`, { metadata: { note: email() } });
    }
  }
}

async function importUsers({ isOver, known }: Client, environment: Environment): Promise<void> {
  using directory = makeDirectory();
  for (let round = 0; !isOver(); round += 1) {
    const lines = Array.from({ length: IMPORTED }, (_, at) =>
      JSON.stringify({ email: `import-${round}-${at}@example.com` }),
    );
    const path = directory.at("users.ndjson");
    await Bun.write(path, `${lines.join("\n")}\n`);
    const { code } = await runBinary(["import", "users", path], environment);
    if (code === 0) known.imported[0] += IMPORTED;
    known.imported[1] += IMPORTED;
    await Bun.sleep(300);
  }
}

interface Reader {
  readonly changes: Change[];
  readonly feed: string;
}

/**
 * Reads all changes by following links. Now and then, it cuts the connection, or reads a page again that it has read
 * before.
 * @param untilId returns the id of the last change; `null` while there may be more
 */
async function follow({ url, token }: Client, untilId: () => number | null): Promise<Reader> {
  const changes: Change[] = [];
  let feed = "";
  let next = `/changes?after=0&limit=${1 + Math.floor(Math.random() * 200)}&wait=1`;

  /** @returns `null` without a response */
  async function read(path: string): Promise<{ data: Change[]; link: string } | null> {
    const signal = AbortSignal.timeout(Math.random() < 0.2 ? 3 : 10_000);
    let response: Response;
    let json: Row;
    try {
      const headers = { authorization: `Bearer ${token}` };
      response = await fetch(`${url()}/api/v1${path}`, { headers, signal });
      json = (await response.json()) as Row;
    } catch {
      return null;
    }
    if (response.status === 503) return null;
    expect([response.status, json["error"]], path).toEqual([200, null]);
    feed ||= json["meta"].feed;
    expect(json["meta"].feed).toBe(feed);
    return { data: json["data"], link: response.headers.get("link") ?? "" };
  }

  for (;;) {
    const last = untilId();
    if (last !== null && changes.length >= last) return { changes, feed };
    const page = await read(next);
    if (page === null) await Bun.sleep(5);
    else {
      for (const change of page.data) expect(change.id).toBe(changes.push(change));
      next = /<\/api\/v1([^>]*)>; rel="next"/.exec(page.link)?.[1] ?? "";
    }
    if (changes.length > 0 && Math.random() < 0.1) {
      const after = Math.floor(Math.random() * changes.length);
      const again = await read(`/changes?after=${after}&limit=20&feed=${feed}`);
      const known = changes.slice(after, after + (again?.data.length ?? 0));
      expect(again?.data.slice(0, known.length) ?? []).toEqual(known);
    }
  }
}

/** The versions of each record are 1, 2, 3 … and end with a deletion, if there is one. */
function verifyOrder(changes: readonly Change[]): void {
  const versions = new Map<string, number>();
  for (const change of changes) {
    const record = `${change.type.split(".")[0]} ${change.record_id}`;
    const before = versions.get(record) ?? 0;
    const isDeletion = change.type === "user.deleted";
    const isNew = change.type.endsWith(".created");
    expect([change, isNew]).toEqual([change, before === 0]);
    expect([change, change.version]).toEqual([change, before + (isDeletion ? 0 : 1)]);
    versions.set(record, isDeletion ? Number.POSITIVE_INFINITY : change.version);
  }
}

/** Changes are those that were acknowledged, and at most as many others as there are writes in doubt. */
function verifyCompleteness(changes: readonly Change[], known: Known): void {
  const seen = new Set(changes.map(nameOfChange));
  expect(seen.size).toBe(changes.length);
  expect([...known.acknowledged].filter((name) => !seen.has(name))).toEqual([]);
  const unexplained = new Map<string, number>();
  let imported = 0;
  for (const change of changes) {
    const { type, record_id, token } = change;
    if (token === null) imported += 1;
    else if (!known.acknowledged.has(nameOfChange(change))) {
      const [kind = "", what] = type.split(".");
      count(unexplained, what === "created" ? kind : `${kind} ${record_id}`);
    }
  }
  const tooMany = [...unexplained].filter(
    ([name, changed]) => changed > (known.inDoubt.get(name) ?? 0),
  );
  expect(tooMany).toEqual([]);
  expect(imported).toBeGreaterThanOrEqual(known.imported[0]);
  expect(imported).toBeLessThanOrEqual(known.imported[1]);
}

function verify(readers: readonly Reader[], last: number, known: Known): void {
  expect(known.wrong).toEqual([]);
  // Readers may have received more: a killed process may have left a statement to the server.
  const [{ changes, feed }, ...others] = readers.map((reader) => ({
    ...reader,
    changes: reader.changes.slice(0, last),
  })) as [Reader, ...Reader[]];
  for (const other of others) {
    expect(other.feed).toBe(feed);
    expect(Bun.deepEquals(other.changes, changes)).toBe(true);
  }
  verifyOrder(changes);
  verifyCompleteness(changes, known);
}

/** @returns the id of the last change; the database may have been killed just before */
async function lastId({ url, token }: Client): Promise<number> {
  const headers = { authorization: `Bearer ${token}` };
  for (;;) {
    const response = await fetch(`${url()}/api/v1/changes?limit=1`, { headers });
    if (response.ok) return Number(((await response.json()) as Row)["meta"].last);
    await Bun.sleep(50);
  }
}

/** Runs the model and verifies all that readers have seen. @returns the number of changes */
export async function runChangesModel(world: World): Promise<number> {
  const { database, processes, killDatabase, settle, seconds } = world;
  const token = newToken();
  const environment = { DATABASE_URL: database, API_TOKEN: token, PORT: "0", LOG_LEVEL: "info" };
  await using resources = new AsyncDisposableStack();
  const services: Service[] = [];
  while (services.length < processes) services.push(resources.use(await startService(environment)));
  const endMs = performance.now() + seconds * 1000;
  const known: Known = {
    acknowledged: new Set(),
    inDoubt: new Map(),
    imported: [0, 0],
    wrong: [],
  };
  let hasFailed = false;
  const client: Client = {
    url: () => pick(services)?.url ?? "",
    token,
    isOver: () => hasFailed || performance.now() > endMs,
    known,
  };

  let kills = 0;
  async function killAgainAndAgain(): Promise<void> {
    while (!client.isOver()) {
      await Bun.sleep(Math.random() * KILL_MS);
      const at = Math.floor(Math.random() * (services.length + 1));
      await (services[at]?.kill() ?? killDatabase?.());
      kills += 1;
    }
  }

  let last: number | null = null;
  const readers = Array.from({ length: READERS }, () => follow(client, () => last));
  const reading = Promise.all(readers).catch((error: unknown) => {
    hasFailed = true;
    throw error;
  });
  // Awaited below.
  reading.catch(() => {});
  const users: number[] = [];
  const orders: number[] = [];
  const writers = Array.from({ length: WRITERS }, () => changeRecords(client, users, orders));
  await Promise.all([killAgainAndAgain(), importUsers(client, environment), ...writers]);
  await settle?.();
  last = await lastId(client);
  const all = await reading;
  await resources.disposeAsync();
  verify(all, last, known);
  expect(await runBinary(["check"], environment)).toMatchObject({ code: 0 });
  if (Bun.env["TEST_TIMES"] === "true") {
    const inDoubt = [...known.inDoubt.values()].reduce((sum, writes) => sum + writes, 0);
    process.stderr.write(`${last} changes, ${inDoubt} writes in doubt, ${kills} kills\n`);
  }
  return last;
}
