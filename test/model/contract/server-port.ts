/** Servers on one database: two on PostgreSQL and Citus. Imports are made as the command does, from another process. */
import { againstPostgres, dropDatabase, newDatabase } from "../../http/backend.ts";
import {
  createToken,
  startReplica,
  type TestResponse,
  type TestServer,
} from "../../http/server.ts";
import { makeDirectory } from "../../support/directory.ts";
import { withStore } from "../../support/open-store.ts";
import {
  AUTHOR,
  type Call,
  type Outcome,
  type Read,
  type Row,
  timeOf,
  type Write,
} from "./reference.ts";
import type { OpenPort } from "./steps.ts";
import { inspect, limitFiles, sendTo } from "./store-port.ts";

const MAX_ATTEMPTS = 50;

function requestOf(call: Write | Read) {
  if (call.kind !== "write") {
    const { offset, ...rest }: Row = call.query;
    const query = rest.after === undefined ? call.query : rest;
    const path = call.kind === "get" ? `/${query.id}` : `?${new URLSearchParams(query)}`;
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
  if (call.kind !== "list") {
    const replayed = call.kind === "write" && { replayed: headers.has("idempotent-replayed") };
    return { json: JSON.stringify(json.data), ...replayed };
  }
  const { total, first, last, feed } = json.meta;
  const records = json.data.map((row: Row) => JSON.stringify(row)).join(",");
  if (call.table === "changes") return { records, total, first, last, feed };
  const next = /after=(\d+)[^>]*>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  return { records, total, nextAfter: next === undefined ? null : Number(next) };
}

export const openPort: OpenPort = async (clock) => {
  const directory = makeDirectory();
  const database = await newDatabase(directory);
  const token = await createToken(database, AUTHOR, "write");
  const tokens = { writeToken: token, readToken: token };
  const names = againstPostgres ? ["a", "b"] : ["a"];
  const servers = await Promise.all(names.map(() => startReplica(database, {}, tokens)));
  let turn = 0;
  let restarting: Promise<void> | null = null;
  let isFull = false;
  function next(): TestServer {
    turn += 1;
    return servers[turn % servers.length] as TestServer;
  }
  const withTime = <Value>(value: Value): Value =>
    JSON.parse(
      JSON.stringify(value).replace(
        /(\\?"(?:created|updated)_at\\?":\\?")[^"\\]+/g,
        (_, name) => name + timeOf(clock.nowMs),
      ),
    );

  async function send(call: Call): Promise<Outcome> {
    if (call.kind === "import") return withStore(database, (store) => sendTo(store, call));
    const [method, path, options] = requestOf(call);
    for (let attempt = 0; ; attempt += 1) {
      try {
        const response = await next().call(method, path, options);
        // The statements of a server that was killed can still hold locks.
        if (response.status === 503 && !isFull) throw new Error(response.text);
        return withTime({ ...outcomeOf(call, response), ...(attempt > 0 && { isRepeated: true }) });
      } catch (error) {
        const hasKey = call.kind === "write" && call.key !== null;
        if (restarting === null || !hasKey || attempt === MAX_ATTEMPTS) throw error;
        await restarting;
      }
    }
  }

  return {
    hasClock: false,
    hasMoments: !againstPostgres,
    send,
    async kill() {
      const server = next();
      await Bun.sleep(Math.random() * 10);
      restarting = server.stop("SIGKILL").then(server.restart);
      await restarting;
    },
    async restart() {
      for (const server of servers) await server.restart();
    },
    fill(bytes) {
      isFull = bytes !== null;
      for (const { pid } of servers)
        if (pid !== null && !againstPostgres) limitFiles(pid, `${database}-wal`, bytes);
    },
    expire: async () => {},
    inspect: () => withStore(database, inspect).then(withTime),
    async close() {
      await Promise.all(servers.map((server) => server.stop("SIGKILL")));
      await dropDatabase(database);
      directory[Symbol.dispose]();
    },
  };
};
