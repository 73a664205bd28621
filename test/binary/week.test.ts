// A week of an operator in minutes, under load: backups, renewed certificates, an upgrade, a crash, a full, a failing and a
// slow disk, damage, a late backup, an unread log, a large write-ahead log, and a read-only server. Prometheus raises the
// alerts of deploy/ meanwhile. At the end, every acknowledged write is stored.
//
// TEST_WEEK=short runs only the faults whose alerts fire within minutes, at sixty times the speed. `make week` runs all of
// them, at fifteen times the speed, and also expects that no other alert fires: that depends on the speed of the machine.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  closeSync,
  copyFileSync,
  openSync,
  readdirSync,
  readFileSync,
  statfsSync,
  unlinkSync,
  utimesSync,
} from "node:fs";
import { messageOf } from "../../src/base/error.ts";
import { newToken } from "../../src/domain/token.ts";
import { againstBinary } from "../http/server.ts";
import { freePort } from "../postgres/instance.ts";
import { damagePage, PAGE_BYTES } from "../support/damage.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { binary, runBinary } from "../support/program.ts";
import { largeMetadata, mountDisk, succeeds } from "./disk.ts";
import { type Prometheus, prometheus, startPrometheus } from "./prometheus.ts";
import { inject, skipTraced } from "./strace.ts";

const length = Bun.env["TEST_WEEK"] ?? "";
const isLong = length === "long";
const FACTOR = isLong ? 15 : 60;
/** A program of an earlier release, which the week begins with; empty for none. */
const older = Bun.env["TEST_WEEK_OLDER"] ?? "";

const WRITERS = 4;
const READERS = 2;
/** Pause of a client between two requests. */
const PAUSE_MS = isLong ? 5 : 20;
const RETRY_MS = 50;
const BACKUP_INTERVAL_MS = 2_000;
const KEPT_BACKUPS = 14;
const DISK_BYTES = 2 ** 30;
const DAY_MS = 24 * 60 * 60 * 1000;
/** Larger than what the alert allows. */
const LARGE_LOG_BYTES = 220e6;
/** More lines than the server keeps, and requests at the same time that write them. */
const [UNREAD_LINES, BATCH] = [10_000, 50];

/** A file system in memory whose size can change. */
interface Disk extends TemporaryDirectory {
  fill(): void;
  empty(): void;
}

/** @returns `null` if it cannot be mounted */
function mountResizable(): Disk | null {
  const directory = mountDisk(DISK_BYTES);
  if (directory === null) return null;
  const { path } = directory;
  const resize = (bytes: number) => succeeds("mount", "-o", `remount,size=${bytes}`, path);
  function fillOnce(): boolean {
    const { blocks, bfree, bsize } = statfsSync(path);
    return resize((blocks - bfree) * bsize);
  }
  return {
    ...directory,
    fill() {
      // It fails if the server has written meanwhile: a file system cannot be smaller than what it holds.
      while (!fillOnce());
    },
    empty: () => expect(resize(DISK_BYTES)).toBe(true),
  };
}

/** The server, on one port all week, and whatever reads its log. */
interface Service extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly database: string;
  readonly pid: () => number;
  start(program?: string, settings?: Readonly<Record<string, string>>): Promise<void>;
  stop(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** A command of the operator, which must succeed. */
  command(...args: string[]): Promise<void>;
  /** Signals the program that reads the log. */
  signalReader(signal: "SIGSTOP" | "SIGCONT"): void;
  log(): string;
  renewCertificate(name: "localhost" | "renewed"): void;
}

async function createService(
  disk: Disk,
  other: TemporaryDirectory,
  token: string,
): Promise<Service> {
  const database = disk.at("user-api.db");
  const [pipe, logFile] = [other.at("log-pipe"), other.at("log")];
  const [tlsCert, tlsKey] = [other.at("tls.crt"), other.at("tls.key")];
  expect(succeeds("mkfifo", pipe)).toBe(true);
  // Both ends stay open, so that the reader sees no end while the server restarts.
  const ends = openSync(pipe, "r+");
  const reader = Bun.spawn(["cat", pipe], { stdout: Bun.file(logFile) });
  const port = await freePort();
  const environment = {
    DATABASE_URL: database,
    PORT: `${port}`,
    API_TOKEN: token,
    TLS_CERT: tlsCert,
    TLS_KEY: tlsKey,
  };
  let child: Bun.Subprocess | null = null;
  const url = `https://127.0.0.1:${port}/api/v1`;

  async function isUp(): Promise<boolean> {
    try {
      return (await fetch(`${url}/health`, { tls: { rejectUnauthorized: false } })).ok;
    } catch {
      return false;
    }
  }

  const service: Service = {
    url,
    port,
    database,
    pid: () => child?.pid ?? 0,
    async start(program = binary, settings = {}) {
      child = Bun.spawn([program, "serve"], {
        env: { ...environment, ...settings },
        stdout: ends,
        stderr: ends,
      });
      while (!(await isUp())) {
        if (child.exitCode !== null) throw new Error(`It exited: ${service.log().slice(-1000)}`);
        await Bun.sleep(20);
      }
    },
    async stop(signal = "SIGTERM") {
      child?.kill(signal);
      await child?.exited;
    },
    async command(...args) {
      const { code, stderr } = await runBinary(args, { DATABASE_URL: database });
      expect([args[0], code, stderr]).toEqual([args[0], 0, expect.any(String)]);
    },
    signalReader: (signal) => reader.kill(signal),
    log: () => readFileSync(logFile, "utf8"),
    renewCertificate(name) {
      const fixture = `${import.meta.dir}/../fixtures/${name}`;
      copyFileSync(`${fixture}.crt`, tlsCert);
      copyFileSync(`${fixture}.key`, tlsKey);
    },
    async [Symbol.asyncDispose]() {
      await service.stop("SIGKILL");
      reader.kill("SIGCONT");
      reader.kill("SIGKILL");
      await reader.exited;
      closeSync(ends);
    },
  };
  return service;
}

/** Clients that write and read all the time, and know what must be stored. */
interface Load {
  /** The name of each user, as last acknowledged, by id. */
  readonly ledger: ReadonlyMap<number, string>;
  /** Number of responses by status. */
  readonly statuses: Record<number, number>;
  /** Writers stop, readers go on. */
  stopWriting(): Promise<void>;
  startWriting(): void;
  stop(): Promise<void>;
}

type Call = (method: string, path: string, body?: unknown, key?: string) => Promise<Response>;

function callerOf({ url }: Service, token: string): Call {
  return (method, path, body, key) =>
    fetch(`${url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body !== undefined && { "content-type": "application/json" }),
        ...(key !== undefined && { "idempotency-key": key }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      tls: { rejectUnauthorized: false },
    });
}

/** @param problems gets the responses that no fault excuses */
function startLoad(call: Call, problems: string[]): Load {
  const ledger = new Map<number, string>();
  const statuses: Record<number, number> = {};
  let [writing, reading] = [false, true];
  let writers: Promise<void>[] = [];
  let created = 0;

  /** @returns `null` without a response, which every fault excuses, as it does 503. Damage excuses 500 */
  async function ask(...request: Parameters<Call>): Promise<any> {
    try {
      const response = await call(...request);
      const text = await response.text();
      const { status } = response;
      statuses[status] = (statuses[status] ?? 0) + 1;
      if (status === 200 || status === 201) return JSON.parse(text).data;
      const isRead = request[0] === "GET";
      if (status !== 503 && !(isRead && status === 500))
        problems.push(`${request[0]} ${request[1]}: ${status} ${text}`);
    } catch {
      statuses[0] = (statuses[0] ?? 0) + 1;
    }
    return null;
  }

  async function untilStored(...request: Parameters<Call>): Promise<any> {
    for (;;) {
      const data = await ask(...request);
      if (data !== null || problems.length > 0) return data;
      await Bun.sleep(RETRY_MS);
    }
  }

  /** Each write is repeated until it is acknowledged, or the week would have writes of unknown outcome. */
  async function write(): Promise<void> {
    while (writing && problems.length === 0) {
      created += 1;
      const body = { email: `${created}@example.com`, name: "new" };
      const user = await untilStored("POST", "/users", body, crypto.randomUUID());
      if (user === null) return;
      ledger.set(user.id, "new");
      const name = crypto.randomUUID();
      await untilStored("PATCH", `/users/${user.id}`, { name });
      ledger.set(user.id, name);
      await Bun.sleep(PAUSE_MS);
    }
  }

  async function read(): Promise<void> {
    while (reading) {
      const id = 1 + Math.floor(Math.random() * ledger.size);
      if (ledger.has(id)) await ask("GET", `/users/${id}`);
      await Bun.sleep(PAUSE_MS);
    }
  }

  const readers = Array.from({ length: READERS }, read);
  const load: Load = {
    ledger,
    statuses,
    async stopWriting() {
      writing = false;
      await Promise.all(writers);
    },
    startWriting() {
      writing = true;
      writers = Array.from({ length: WRITERS }, write);
    },
    async stop() {
      await load.stopWriting();
      reading = false;
      await Promise.all(readers);
    },
  };
  return load;
}

/** Backups on a schedule, of the newest program. @param problems gets the errors */
function startBackups(service: Service, directory: string, problems: string[]) {
  const args = ["backup", "--directory", directory, "--keep", `${KEPT_BACKUPS}`] as const;
  let going = true;
  let made = 0;
  async function repeat(): Promise<void> {
    while (going) {
      const error = await service.command(...args).catch(messageOf);
      if (error === undefined) made += 1;
      else problems.push(error);
      await Bun.sleep(BACKUP_INTERVAL_MS);
    }
  }
  let repeating = repeat();
  return {
    made: () => made,
    files: () => readdirSync(directory).sort(),
    async stop() {
      going = false;
      await repeating;
    },
    start() {
      going = true;
      repeating = repeat();
    },
  };
}

/** What happens on a day, and the alerts that must fire. */
interface Day {
  readonly name: string;
  readonly alerts: readonly string[];
  /** Alerts that may fire as well. */
  readonly maybe?: readonly string[];
  readonly begin: () => unknown;
  /** Called when all alerts fire. */
  readonly repair: () => unknown;
}

const obstacle = [
  againstBinary ? null : "TEST_BINARY is not set",
  prometheus === null ? "Prometheus is not installed" : null,
  skipTraced ? "strace cannot be used" : null,
].find((each) => each !== null);
const disk = length !== "" && obstacle === undefined ? mountResizable() : null;
if (length !== "" && disk === null)
  console.warn(`A week is not tested: ${obstacle ?? "cannot mount a file system here"}`);

/** @returns the alerts that must not fire */
async function liveThrough(
  day: Day,
  { firing }: Prometheus,
  problems: readonly string[],
): Promise<string[]> {
  const seen = new Set<string>();
  const startedMs = Date.now();
  await day.begin();
  do {
    await Bun.sleep(100);
    for (const alert of await firing()) seen.add(alert);
    expect(problems).toEqual([]);
  } while (!day.alerts.every((alert) => seen.has(alert)));
  const firedMs = Date.now();
  await day.repair();
  let rest = await firing();
  while (rest.length > 0) {
    for (const alert of rest) seen.add(alert);
    await Bun.sleep(100);
    rest = await firing();
  }
  const seconds = (ms: number) => ((ms - startedMs) / 1000).toFixed(1);
  if (isLong)
    console.info(
      `${day.name}: [${[...seen]}] in ${seconds(firedMs)} s, over after ${seconds(Date.now())} s`,
    );
  return [...seen].filter((alert) => ![...day.alerts, ...(day.maybe ?? [])].includes(alert));
}

test.if(disk !== null)(
  "every alert fires when it should, and every acknowledged write is stored, after a week of faults",
  async () => {
    using volume = disk as Disk;
    using other = makeDirectory();
    const token = newToken();
    await using service = await createService(volume, other, token);
    service.renewCertificate("localhost");
    await service.start(older === "" ? binary : older);
    await using monitoring = await startPrometheus({ target: service.port, token, factor: FACTOR });
    const call = callerOf(service, token);
    const problems: string[] = [];
    const load = startLoad(call, problems);
    load.startWriting();
    await Bun.sleep(isLong ? 10_000 : 1_000);
    // The upgrade migrates the schema.
    await service.stop();
    await service.start();
    const backups = startBackups(service, other.at("backups"), problems);
    const unexpected: string[] = [];
    const rejectedWrites = ["UserApiNotWritable", "UserApiFailedWrites", "UserApiUnavailable"];
    const nothing = () => {};
    let release: () => unknown = nothing;

    async function live(day: Day): Promise<void> {
      for (const alert of await liveThrough(day, monitoring, problems))
        unexpected.push(`${day.name}: ${alert}`);
      expect(problems).toEqual([]);
    }

    await live({
      name: "a renewed certificate and a restart",
      alerts: [],
      async begin() {
        service.renewCertificate("renewed");
        process.kill(service.pid(), "SIGHUP");
        while (!service.log().includes('"certificate reloaded"')) await Bun.sleep(20);
        await service.stop();
        await service.start();
        await Bun.sleep(isLong ? 20_000 : 1_000);
      },
      repair: nothing,
    });

    await live({
      name: "a crash",
      alerts: ["UserApiDown"],
      async begin() {
        await backups.stop();
        await service.stop("SIGKILL");
      },
      repair: () => service.start(),
    });

    await live({
      name: "a full disk",
      alerts: [...rejectedWrites, "UserApiDiskSpace"],
      begin: volume.fill,
      repair: volume.empty,
    });

    await live({
      name: "a failing disk",
      alerts: rejectedWrites,
      async begin() {
        release = await inject(service.pid(), { calls: "pwrite64,fsync,fdatasync", error: "EIO" });
      },
      repair: () => release(),
    });

    await live({
      name: "damage, and a restore of the newest backup",
      alerts: ["UserApiServerErrors"],
      // The restart.
      maybe: ["UserApiDown"],
      async begin() {
        await load.stopWriting();
        backups.start();
        await backups.stop();
        await service.stop();
        const [id, name] = [...load.ledger].at(Math.floor(load.ledger.size / 2)) ?? [0, ""];
        const at = readFileSync(service.database).indexOf(name);
        damagePage(service.database, Math.ceil(at / PAGE_BYTES));
        await service.start();
        expect((await call("GET", `/users/${id}`)).status).toBe(500);
      },
      async repair() {
        await service.stop();
        await service.command("restore", `${other.at("backups")}/${backups.files().at(-1)}`);
        for (const file of readdirSync(volume.path)) {
          // The damaged database, which the restore has kept.
          if (/\.db\.2/.test(file)) unlinkSync(volume.at(file));
        }
        await service.start();
        load.startWriting();
      },
    });

    await live({
      name: "a late backup",
      alerts: ["UserApiBackupLate"],
      begin() {
        const time = new Date(Date.now() - 2 * DAY_MS);
        utimesSync(`${service.database}-last-backup`, time, time);
      },
      repair: backups.start,
    });

    await live({
      name: "an unread log",
      alerts: ["UserApiLogLinesDropped"],
      async begin() {
        service.signalReader("SIGSTOP");
        for (let lines = 0; lines < UNREAD_LINES; lines += BATCH) {
          const requests = Array.from({ length: BATCH }, () => call("GET", "/health"));
          await Promise.all(requests.map(async (request) => (await request).text()));
        }
      },
      repair: () => service.signalReader("SIGCONT"),
    });

    if (isLong) {
      await live({
        name: "a slow disk",
        alerts: ["UserApiSlowCommits"],
        // Each commit takes most of the time that Prometheus waits at this speed.
        maybe: ["UserApiDown"],
        async begin() {
          const slow = { calls: "fsync,fdatasync", delayMs: 600 };
          release = await inject(service.pid(), slow);
        },
        repair: () => release(),
      });

      await live({
        name: "a large write-ahead log, and a read-only server",
        alerts: ["UserApiLargeWal", "UserApiReadOnly", "UserApiFailedWrites", "UserApiUnavailable"],
        async begin() {
          await backups.stop();
          const snapshot = new Database(service.database, { readonly: true });
          snapshot.run("begin");
          snapshot.query("select count(*) from users").get();
          release = () => snapshot.close();
          while (Bun.file(`${service.database}-wal`).size < LARGE_LOG_BYTES) {
            const edits = Array.from({ length: 16 }, (_, at) =>
              call("PATCH", `/users/${at + 1}`, {
                metadata: { ...largeMetadata, "note 0": `${Math.random()}` },
              }),
            );
            await Promise.all(edits);
          }
          await service.stop();
          await service.start(binary, { READ_ONLY: "true" });
        },
        async repair() {
          await release();
          await service.stop();
          await service.start();
          backups.start();
        },
      });
    }

    await backups.stop();
    await load.stop();
    expect(problems).toEqual([]);
    const users = new Map<number, string>();
    for (let after = 0; ; ) {
      const page = await call("GET", `/users?limit=1000&after=${after}`);
      const { data } = (await page.json()) as any;
      if (data.length === 0) break;
      for (const { id, name } of data) if (name !== null) users.set(id, name);
      after = data.at(-1).id;
    }
    expect([...users].sort()).toEqual([...load.ledger].sort());
    expect(load.ledger.size).toBeGreaterThan(0);
    expect(backups.files().length).toBe(Math.min(backups.made(), KEPT_BACKUPS));
    await service.stop();
    await service.command("check");
    await service.command(
      "check",
      "--database-url",
      `${other.at("backups")}/${backups.files().at(-1)}`,
    );
    if (!isLong) return;
    console.info(`${load.ledger.size} users, ${backups.made()} backups`, load.statuses);
    expect(unexpected).toEqual([]);
  },
  isLong ? 60 * 60_000 : 300_000,
);
