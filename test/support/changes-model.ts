/**
 * Readers of the change feed, each with connections that break, while clients change the same records through all
 * processes of a service, and processes are killed again and again. No change is missing, twice, out of order or made up,
 * and lists have the records that were acknowledged, and exact totals.
 */
import { expect } from "bun:test";
import type { Change } from "../../src/domain/change.ts";
import { orderStatuses } from "../../src/domain/order.ts";
import { newToken } from "../../src/domain/token.ts";
import {
  type Client,
  count,
  type Known,
  list,
  nameOf,
  type Reader,
  type Row,
  readLists,
  verify,
  verifyLists,
} from "./changes-verification.ts";
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

/** @param wrong gets the errors of its log that nothing excuses */
async function startService(environment: Environment, wrong: string[]): Promise<Service> {
  const start = () => startProgram([binary, "serve"], { env: environment });
  let running = start();
  let url = (await running.listening) ?? "";
  async function end(signal: NodeJS.Signals): Promise<void> {
    running.kill(signal);
    await running.ended;
    const lines = running.output().split("\n");
    wrong.push(...lines.filter((line) => line.includes('"internal error"')));
  }
  return {
    get url() {
      return url;
    },
    async kill() {
      await end("SIGKILL");
      running = start();
      url = (await running.listening) ?? "";
    },
    [Symbol.asyncDispose]: () => end("SIGTERM"),
  };
}

export interface World {
  readonly database: string;
  /** Number of processes. */
  readonly processes: number;
  /** Whether a page and its total are of the same moment. */
  readonly hasSnapshots: boolean;
  /** Kills servers of the database and starts them again; a missing one is as if there were none. */
  readonly killDatabase?: () => Promise<void>;
  /** Called after all writes, before the changes are verified. */
  readonly settle?: () => Promise<void>;
  readonly seconds: number;
}

const pick = <Item>(items: readonly Item[]): Item | undefined =>
  items[Math.floor(Math.random() * items.length)];

/**
 * Sends a write. With a key, it is repeated until there is a response, and sometimes once more.
 * @returns the record of a successful response; `null` if the request was rejected, or may have been carried out
 */
async function write(
  { url, token, known }: Client,
  method: string,
  path: string,
  body?: object,
): Promise<Row | null> {
  const [, table = "", id] = path.split("/");
  const kind = table.slice(0, -1);
  // Creates with and without a key are different statements.
  const hasKey = method === "POST" && Math.random() < 0.5;
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    ...(hasKey && { "idempotency-key": crypto.randomUUID() }),
  };
  const content = body === undefined ? null : JSON.stringify(body);
  /** @returns `null` if it may have been carried out */
  async function send() {
    try {
      const response = await fetch(`${url()}/api/v1${path}`, { method, headers, body: content });
      const text = await response.text();
      if (response.status === 503) return null;
      return { status: response.status, text, headers: response.headers };
    } catch {
      return null;
    }
  }
  let response = await send();
  while (response === null && hasKey) {
    await Bun.sleep(5);
    response = await send();
  }
  if (response === null) {
    count(known.inDoubt, id === undefined ? kind : `${kind} ${id}`);
    await Bun.sleep(5);
    return null;
  }
  const { status, text } = response;
  // Emails are unique: one that is taken was created by the same request before, and its key is lost.
  const isLost = status === 409 && method === "POST";
  if (status >= 500 || isLost) known.wrong.push(`${method} ${path}: ${status} ${text}`);
  if (status >= 300) return null;
  const { data } = JSON.parse(text) as { data: Row };
  const state = method === "DELETE" ? "deleted" : (data["status"] ?? null);
  const name = nameOf(kind, data["id"], data["version"], state);
  // A request that changes nothing returns the same record again.
  if (!Bun.deepEquals(known.acknowledged.get(name) ?? data, data))
    known.wrong.push(`acknowledged with another content: ${name} ${text}`);
  known.acknowledged.set(name, data);
  if (hasKey && Math.random() < 0.3) {
    const again = await send();
    const isReplay = again?.text === text && again.headers.has("idempotent-replayed");
    if (again !== null && !isReplay) known.wrong.push(`replay of ${text}: ${again.text}`);
  }
  return data;
}

/** Creates records, and changes those that all clients change. */
async function changeRecords(client: Client, users: number[], orders: number[]): Promise<void> {
  const keep = (ids: number[], row: Row | null) => {
    if (row !== null) ids.push(row["id"]);
    if (ids.length > CONTENDED) ids.shift();
  };
  const email = () => `${crypto.randomUUID()}@example.com`;
  while (!client.isOver()) {
    const user = pick(users) ?? 0;
    const order = pick(orders) ?? 0;
    const turn = Math.random();
    if (turn < 0.2) keep(users, await write(client, "POST", "/users", { email: email() }));
    else if (turn < 0.3) {
      const items = [{ sku: crypto.randomUUID(), quantity: 1, unit_price: 1 }];
      const fields = { user_id: user, currency: "EUR", items };
      keep(orders, await write(client, "POST", "/orders", fields));
    } else if (turn < 0.55) await write(client, "PATCH", `/users/${user}`, { name: email() });
    else if (turn < 0.6) await write(client, "PATCH", `/users/${user}`, {});
    else if (turn < 0.7) await write(client, "PUT", `/users/${user}`, { email: email() });
    else if (turn < 0.75) await write(client, "DELETE", `/users/${user}`);
    else if (turn < 0.85) {
      await write(client, "PATCH", `/orders/${order}`, { status: pick(orderStatuses) });
    } else {
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

/** @returns the id of the last change; the database may have been killed just before */
async function lastId(client: Client): Promise<number> {
  for (;;) {
    const page = await list(client, "/changes?limit=1");
    if (page !== null) return Number(page["meta"].last);
    await Bun.sleep(50);
  }
}

/** Runs the model and verifies all that readers have seen. @returns the number of changes */
export async function runChangesModel(world: World): Promise<number> {
  const { database, processes, hasSnapshots, killDatabase, settle, seconds } = world;
  const token = newToken();
  const environment = { DATABASE_URL: database, API_TOKEN: token, PORT: "0", LOG_LEVEL: "info" };
  await using resources = new AsyncDisposableStack();
  const known: Known = {
    acknowledged: new Map(),
    inDoubt: new Map(),
    imported: [0, 0],
    wrong: [],
  };
  const services: Service[] = [];
  while (services.length < processes)
    services.push(resources.use(await startService(environment, known.wrong)));
  const endMs = performance.now() + seconds * 1000;
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
  const listing = hasSnapshots ? [readLists(client)] : [];
  const reading = Promise.all([...readers, ...listing]).catch((error: unknown) => {
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
  await reading;
  const changes = verify(await Promise.all(readers), last, known);
  await verifyLists(client, changes);
  await resources.disposeAsync();
  expect(known.wrong).toEqual([]);
  expect(await runBinary(["check"], environment)).toMatchObject({ code: 0 });
  if (Bun.env["TEST_TIMES"] === "true") {
    const inDoubt = [...known.inDoubt.values()].reduce((sum, writes) => sum + writes, 0);
    const { size } = known.acknowledged;
    process.stderr.write(
      `${last} changes, ${size} acknowledged writes, ${inDoubt} in doubt, ${kills} kills\n`,
    );
  }
  return last;
}
