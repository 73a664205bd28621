/**
 * Servers on one database: two on PostgreSQL and Citus. Imports are made as the command does, from another process, and a
 * client reads all the time.
 */
import { expect } from "bun:test";
import { hashToken, newToken } from "../../../src/domain/token.ts";
import { againstCitus, dropDatabase, newDatabase } from "../../http/backend.ts";
import { startReplica, type TestResponse, type TestServer } from "../../http/server.ts";
import { makeDirectory } from "../../support/directory.ts";
import { withStore } from "../../support/open-store.ts";
import { randomOf } from "../clock.ts";
import { describe, play } from "./play.ts";
import type { Call, Outcome, Read, Row, Write } from "./reference.ts";
import { AUTHOR, timeOf } from "./reference.ts";
import { type Clock, makeSteps, type Port } from "./steps.ts";
import { inspect, limitFiles, sendTo } from "./store-port.ts";

const MAX_ATTEMPTS = 200;
const RETRY_MS = 5;
/** So many calls are sent at the same time. */
const CLIENTS = 12;
/** Calls of some steps, which are sent before, while and after a server is killed. */
const CROWD = 120;

/** What the servers of a history run on. */
export interface World extends AsyncDisposable {
  readonly database: string;
  /** Kills servers of the database, and starts or replaces them. Without, one of the service is killed. */
  readonly killDatabase?: () => Promise<void>;
  /** Whether another server replaces the one that is killed: then the feed gets another name. */
  readonly isReplaced?: boolean;
}

/** Lists whose totals are stored apart. */
const lists = ["/users?", "/orders?", "/orders?status=pending&", "/orders?status=paid&"];

function requestOf(call: Write | Read) {
  if (call.kind !== "write") {
    const { offset, ...rest }: Row = call.query;
    const query = rest.after === undefined ? call.query : rest;
    const { id, ...place } = query;
    const path = {
      get: `/${id}`,
      list: `?${new URLSearchParams(query)}`,
      history: `/${id}/changes?${new URLSearchParams(place)}`,
      sum: `/sums?${new URLSearchParams(query)}`,
    }[call.kind];
    return ["GET", `/${call.table}${path}`, {}] as const;
  }
  const { method, table, id, body, key, ifMatch } = call;
  const headers = {
    "content-type": "application/json",
    ...(key !== null && { "idempotency-key": key }),
    ...(ifMatch !== null && { "if-match": `"${ifMatch}"` }),
  };
  // -0 is 0.
  const raw = JSON.stringify(body).replace('"refunded":0', '"refunded":-0');
  const options = { headers, ...(method !== "DELETE" && { raw }) };
  return [method, `/${table}${method === "POST" ? "" : `/${id}`}`, options] as const;
}

function outcomeOf(call: Write | Read, { status, headers, json }: TestResponse): Outcome {
  if (status === 404) return { code: "not_found" };
  if (status >= 300) return { code: json?.meta.code ?? status };
  if (call.kind !== "list" && call.kind !== "history") {
    const replayed = call.kind === "write" && { replayed: headers.has("idempotent-replayed") };
    return { json: JSON.stringify(json.data), ...replayed };
  }
  const { total, first, last, feed } = json.meta;
  const records = json.data.map((row: Row) => JSON.stringify(row)).join(",");
  if (call.table === "changes") return { records, total, first, last, feed };
  const next = /after=(\d+)[^>]*>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  return { records, total, nextAfter: next === undefined ? null : Number(next) };
}

async function makeWorld(): Promise<World> {
  const directory = makeDirectory();
  const database = await newDatabase(directory);
  async function dispose() {
    await dropDatabase(database);
    directory[Symbol.dispose]();
  }
  return { database, [Symbol.asyncDispose]: dispose };
}

/** Follows the feed, and reads whole lists. */
function startReader(next: () => TestServer) {
  const seen: Row[] = [];
  let isOver = false;
  let failure: unknown = null;

  async function read(path: string): Promise<Row> {
    const response = await next()
      .call("GET", path)
      .catch(() => null);
    if (response === null || response.status === 503) return { data: [], meta: { total: 0 } };
    expect([path, response.status]).toEqual([path, 200]);
    return response.json;
  }

  async function readAll(): Promise<void> {
    for (let turn = 0; !isOver; turn += 1) {
      const limit = 1 + Math.floor(Math.random() * 20);
      const { data } = await read(`/changes?after=${seen.length}&limit=${limit}&wait=${turn % 2}`);
      for (const change of data) expect(change.id).toBe(seen.push(change));
      // On Citus, a page and its total are of different moments.
      const path = `${lists[turn % lists.length]}limit=1000`;
      const page = againstCitus ? null : await read(path);
      expect([path, page?.["data"].length]).toEqual([path, page?.["meta"].total]);
    }
  }
  readAll().catch((error) => {
    failure = error;
  });
  return {
    /** Expects that it has seen the first of these changes, each once and in order. */
    expectSeen(changes: readonly Row[], withTime: (seen: Row[]) => Row[]): void {
      expect(failure).toBeNull();
      expect(withTime(seen)).toEqual(changes.slice(0, seen.length));
      expect(seen.length).toBeGreaterThan(0);
    },
    end() {
      isOver = true;
    },
  };
}

async function openPort(world: World, clock: Clock): Promise<Port> {
  const { database, killDatabase, isReplaced = false } = world;
  const token = newToken();
  const tokens = { writeToken: token, readToken: token };
  const isShared = database.startsWith("postgres");
  const names = isShared ? ["a", "b"] : ["a"];
  // If the database is empty, they create its tables at the same time.
  const servers = await Promise.all(names.map(() => startReplica(database, {}, tokens)));
  const fields = { hash: hashToken(token), name: AUTHOR, scope: "write", expires_at: null };
  await withStore(database, (store) => store.tokens.create(fields));
  let turn = 0;
  let restarting: Promise<void> | null = null;
  let isFull = false;
  function next(): TestServer {
    turn += 1;
    return servers[turn % servers.length] as TestServer;
  }
  const reader = startReader(next);
  const clients: Promise<unknown>[] = Array(CLIENTS).fill(null);
  let sent = 0;

  async function restart(server: TestServer, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    await server.stop(signal);
    const lines = server.output.split("\n");
    expect(lines.filter((line) => line.includes('"internal error"'))).toEqual([]);
    await server.restart();
  }

  const withTime = <Value>(value: Value): Value =>
    JSON.parse(
      JSON.stringify(value).replace(
        /(\\?"(?:created|updated)_at\\?":\\?")[^"\\]+/g,
        (_, name) => name + timeOf(clock.nowMs),
      ),
    );

  async function sendNow(call: Call): Promise<Outcome> {
    if (call.kind === "import") return withStore(database, (store) => sendTo(store, call));
    const [method, path, options] = requestOf(call);
    for (let attempt = 0; ; attempt += 1) {
      let isBusy = false;
      try {
        const response = await next().call(method, path, options);
        isBusy = response.status === 503 && !isFull;
        // On a slow machine, or while the statements of a server that was killed hold locks.
        if (isBusy) throw new Error(response.text);
        const outcome = outcomeOf(call, response);
        const renamed = isReplaced && "feed" in outcome && { feed: "any" };
        const repeated = attempt > 0 && call.kind === "write" && { isRepeated: true };
        return withTime({ ...outcome, ...renamed, ...repeated });
      } catch (error) {
        const mayRepeat = call.kind !== "write" || call.key !== null;
        const isExpected = isBusy || restarting !== null;
        if (!isExpected || !mayRepeat || attempt === MAX_ATTEMPTS) throw error;
        await restarting;
        await Bun.sleep(RETRY_MS);
      }
    }
  }

  async function send(call: Call): Promise<Outcome> {
    const client = sent % CLIENTS;
    sent += 1;
    const before = clients[client];
    const outcome = (async () => {
      await before;
      return sendNow(call);
    })();
    clients[client] = outcome.catch(() => {});
    return outcome;
  }

  return {
    hasClock: false,
    hasMoments: !isShared,
    send,
    async kill() {
      await Bun.sleep(Math.random() * 10);
      restarting = killDatabase?.() ?? restart(next(), "SIGKILL");
      await restarting;
    },
    async restart() {
      for (const server of servers) await restart(server, "SIGTERM");
    },
    fill(bytes) {
      isFull = bytes !== null;
      for (const { pid } of servers)
        if (pid !== null && !isShared) limitFiles(pid, `${database}-wal`, bytes);
    },
    expire: async () => {},
    async inspect() {
      const query = { limit: 1000, offset: 0 };
      const { records } = await send({ kind: "list", table: "changes", query });
      reader.expectSeen(JSON.parse(`[${records}]`), withTime);
      for (const { output } of servers) expect(output).not.toContain('"internal error"');
      return withTime(await withStore(database, inspect));
    },
    async close() {
      reader.end();
      await Promise.all(servers.map((server) => server.stop("SIGKILL")));
      await world[Symbol.asyncDispose]();
    },
  };
}

/** Plays histories, each on the servers of a separate world. @throws if one breaks a promise */
export async function playHistories(
  count: number,
  openWorld: () => Promise<World> = makeWorld,
): Promise<void> {
  for (let seed = 1; seed <= count; seed += 1) {
    const open = async (clock: Clock) => openPort(await openWorld(), clock);
    const random = randomOf(seed, "crowd");
    const crowd = () => Array.from({ length: CROWD }, () => random(2 ** 30));
    const steps = makeSteps(seed).map((step, at) =>
      at % 3 === 1 ? ({ kind: "kill", seeds: crowd() } as const) : step,
    );
    const result = await play(steps, open);
    const { broken } = result;
    expect(broken === null ? "" : describe(seed, broken.rule, result)).toBe("");
  }
}
