/**
 * Readers of the change feed, each with connections that break, while clients change the same records through all
 * processes of a service, and processes are killed again and again. No change is missing, twice, out of order or made up,
 * and lists have the records that were acknowledged, and exact totals.
 */
import { expect } from "bun:test";
import type { Change } from "../../src/domain/change.ts";
import { newToken } from "../../src/domain/token.ts";
import {
  type Client,
  type Known,
  list,
  type Reader,
  type Row,
  readLists,
  verify,
  verifyLists,
} from "./changes-verification.ts";
import { changeRecords, pick } from "./changes-writers.ts";
import { makeDirectory } from "./directory.ts";
import { binary, runBinary, startProgram } from "./program.ts";

const WRITERS = 12;
const READERS = 3;
/** Longest time until the next process is killed. */
const KILL_MS = 1_500;
const IMPORTED = 300;

/** Statements of killed processes on PostgreSQL that still write. */
export const writingBackends = "select from pg_stat_activity where backend_xid is not null";

interface Service extends AsyncDisposable {
  readonly url: string;
  /** Kills it and starts it again, on another port. */
  kill(): Promise<void>;
}

type Environment = Readonly<Record<string, string>>;

/** @param wrong gets the errors of its log that nothing excuses */
async function startService(
  { command = () => [binary] }: World,
  environment: Environment,
  wrong: string[],
): Promise<Service> {
  let starts = 0;
  const start = () => {
    starts += 1;
    return startProgram([...command(starts), "serve"], { env: environment });
  };
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
  readonly processes: number;
  /** Whether a page and its total are of the same moment. */
  readonly hasSnapshots: boolean;
  /** The program of a process, which is started for the first, the second … time. */
  readonly command?: (starts: number) => readonly string[];
  /**
   * Kills servers of the database and starts them again; a missing one is as if there were none.
   * @param urls of the processes
   */
  readonly killDatabase?: (urls: readonly string[]) => Promise<void>;
  /** Whether another server replaces the killed one: processes are not killed, and readers may have to begin again. */
  readonly isReplaced?: boolean;
  /** Called after all writes, before the changes are verified. */
  readonly settle?: () => Promise<void>;
  readonly seconds: number;
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
 * @param untilEnd returns the last change; `null` while there may be more
 */
async function follow(
  { url, token }: Client,
  { isReplaced = false }: World,
  untilEnd: () => End | null,
): Promise<Reader> {
  const changes: Change[] = [];
  let feed = "";
  const start = `/changes?after=0&limit=${1 + Math.floor(Math.random() * 200)}&wait=1`;
  let next = start;

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
    if (isReplaced && response.status === 410) {
      expect(json["meta"].code).toBe("changes_reset");
      changes.length = 0;
      feed = "";
      next = start;
      return null;
    }
    expect([response.status, json["error"]], path).toEqual([200, null]);
    feed ||= json["meta"].feed;
    expect(json["meta"].feed).toBe(feed);
    return { data: json["data"], link: response.headers.get("link") ?? "" };
  }

  for (;;) {
    const end = untilEnd();
    if (end !== null && changes.length >= end.last && feed === end.feed) return { changes, feed };
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

interface End {
  readonly last: number;
  readonly feed: string;
}

/** The database may have been killed just before. */
async function readEnd(client: Client): Promise<End> {
  for (;;) {
    const page = await list(client, "/changes?limit=1");
    if (page !== null) return page["meta"];
    await Bun.sleep(50);
  }
}

/** Runs the model and verifies all that readers have seen. @returns the number of changes */
export async function runChangesModel(world: World): Promise<number> {
  const { database, processes, hasSnapshots, killDatabase, isReplaced, settle, seconds } = world;
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
    services.push(resources.use(await startService(world, environment, known.wrong)));
  const endMs = performance.now() + seconds * 1000;
  let hasFailed = false;
  const client: Client = {
    url: () => pick(services)?.url ?? "",
    token,
    // A busy machine does little in that time.
    isOver: () =>
      hasFailed || (performance.now() > endMs && known.acknowledged.size > 10 * seconds),
    known,
  };

  async function killAgainAndAgain(): Promise<void> {
    while (!client.isOver()) {
      await Bun.sleep(Math.random() * KILL_MS);
      const at = Math.floor((isReplaced ? 1 : Math.random()) * (services.length + 1));
      await (services[at]?.kill() ?? killDatabase?.(services.map(({ url }) => url)));
    }
  }

  let end: End | null = null;
  const readers = Array.from({ length: READERS }, () => follow(client, world, () => end));
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
  end = await readEnd(client);
  const { last } = end;
  await reading;
  const changes = verify(await Promise.all(readers), last, known);
  await verifyLists(client, changes);
  await resources.disposeAsync();
  expect(known.wrong).toEqual([]);
  expect(await runBinary(["check"], environment)).toMatchObject({ code: 0 });
  return last;
}
