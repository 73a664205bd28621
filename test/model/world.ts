/** A world of machines that share an archive: their programs, whoever starts them again, and the clients. */
import { drainMicrotasks } from "bun:jsc";
import { AppError, messageOf } from "../../src/base/error.ts";
import { type ObjectStorage, withRetries } from "../../src/domain/object-storage.ts";
import { promote } from "../../src/sqlite/archive/follow/promote.ts";
import type { DatabaseFiles, Machine } from "../../src/sqlite/archive/machine.ts";
import { markerOfRestored, restoreTo } from "../../src/sqlite/archive/read/rebuild.ts";
import { wrapStorage } from "../object-storage/memory.ts";
import type { Process } from "./clock.ts";
import { createHost, createScheduler, machineOf, randomOf, startProcess } from "./clock.ts";
import { createDisk, type Disk } from "./disk.ts";
import { type Conditions, createBucket, createWay, healthy } from "./network.ts";
import type { Kind, Plan, PlannedEvent } from "./plan.ts";
import { type Bounds, createRules } from "./rules.ts";
import { type ServerParts, type Store, serve } from "./server.ts";

const KEEP_MS = 7 * 24 * 60 * 60 * 1000;
/** Who starts a program again that has ended takes at most so long. */
const [MIN_RESTART_MS, MAX_RESTART_MS] = [300, 1_500];
/** What a fault of the disk has begun ends later. */
const FAULT_MS = 15_000;
const SNAPSHOT_MS = 8_000;
const LOOK_MS = 900;
/** Writes for a while, as fast as they can be sent. */
const [MAX_BURST_MS, BURST_GAP_MS, MAX_BURST_WAITING] = [3_000, 8, 24];
const [RETRY_MS, CLIENT_TIMEOUT_MS, MAX_WAITING] = [200, 7_000, 6];

/** What an archive does not survive without help. */
const SPOILS: ReadonlySet<Kind> = new Set(["delete", "damage", "forget"]);

const unchanged = <Value>(value: Value): Value => value;

/** A planted fault. */
export interface Mutant {
  readonly storage?: (storage: ObjectStorage) => ObjectStorage;
  readonly files?: (files: DatabaseFiles) => DatabaseFiles;
  readonly machine?: (machine: Machine) => Machine;
  readonly settings?: Partial<ServerParts["settings"]>;
  readonly server?: ServerParts["mutation"];
}

interface Running {
  readonly process: Process;
  readonly stopping: AbortController;
  /** The last one of its archive. */
  thread: Process | null;
  hasReached: boolean;
}

export function createWorld(plan: Plan, mutant: Mutant) {
  const { seed, commit, takeoverMs } = plan;
  const isSync = commit === "sync";
  const scheduler = createScheduler();
  const { nowMs } = scheduler;
  const { storage = unchanged, files = unchanged, machine = unchanged } = mutant;
  const bucket = createBucket(scheduler);
  const trace: string[] = [];
  const note = (line: string) => void trace.push(`${nowMs().toFixed(1)} ${line}`);
  const rules = createRules(nowMs, isSync, note);
  const settings: ServerParts["settings"] = {
    url: bucket.storage.url,
    environment: {},
    restore: "if-missing",
    intervalMs: 10_000,
    commit,
    keepMs: KEEP_MS,
    standby: plan.standby,
    takeoverMs,
    ...mutant.settings,
  };

  type Site = ReturnType<typeof createSite>;

  function createSite(latencyMs: number, at: number) {
    const name = "abc"[at] ?? "";
    const host = createHost(name, randomOf(seed, name), scheduler);
    const conditions: Conditions = { latencyMs, ...healthy };
    const disk = createDisk(host);
    const site = {
      name,
      host,
      disk,
      damage: disk.damage,
      conditions,
      reach: createWay(host, conditions, note),
      snapshots: [] as ReturnType<Disk["snapshot"]>[],
      running: null as Running | null,
      current: null as Store | null,
      starts: 0,
      waitsFor: null as string | null,
      /** Whether the program starts again by itself. */
      isSupervised: true,
      /** When a fault of the disk was last under way. */
      diskFailedMs: Number.NEGATIVE_INFINITY,
      isRunning(): boolean {
        const { running } = site;
        if (running === null || running.stopping.signal.aborted) return false;
        return !running.process.isDead() && host.pausedUntilMs <= nowMs();
      },
    };
    return site;
  }

  const sites = plan.sites.map(({ latencyMs }, at) => createSite(latencyMs, at));

  function storageOf(site: Site, thread: Process): ObjectStorage {
    const reached = site.reach(thread, bucket.storage);
    return wrapStorage(reached, async (call, _, key) => {
      const result = await call();
      // Before that, the storage is tried.
      const { running } = site;
      if (running?.thread === thread && !key.startsWith("probe/")) running.hasReached = true;
      return result;
    });
  }

  function noteEnd(site: Site, running: Running, reason: string | null): void {
    if (site.running !== running) return;
    note(`${site.name} ends: ${reason ?? "stopped"}`);
    running.process.kill();
    Object.assign(site, { running: null, current: null, waitsFor: null });
    const isExcused =
      nowMs() < site.diskFailedMs + FAULT_MS || plan.events.some(({ kind }) => SPOILS.has(kind));
    const wasFine = running.hasReached && isSync && settings.standby && !isExcused;
    if (reason !== null && wasFine) rules.report("exit", `${site.name} exits: ${reason}`);
    const restMs = MIN_RESTART_MS + site.host.random(MAX_RESTART_MS - MIN_RESTART_MS);
    scheduler.after(restMs, () => {
      if (site.isSupervised) start(site);
    });
  }

  /** A process that has crashed is started again, too. */
  function watchProcess(site: Site, running: Running): void {
    if (site.running !== running) return;
    if (running.process.isDead()) noteEnd(site, running, null);
    else scheduler.after(MIN_RESTART_MS, () => watchProcess(site, running));
  }

  function start(site: Site): void {
    if (site.running !== null) return;
    site.starts += 1;
    site.isSupervised = true;
    note(`${site.name} starts`);
    const name = `${site.name}${site.starts}`;
    const onError = (error: unknown) => noteEnd(site, running, `bug: ${messageOf(error)}`);
    const process = startProcess(name, site.host, onError);
    const stopping = new AbortController();
    const running: Running = { process, stopping, thread: null, hasReached: false };
    site.running = running;
    watchProcess(site, running);
    const parts: ServerParts = {
      process,
      disk: site.disk,
      settings,
      filesOf: (thread) => files(site.disk.files(thread)),
      machineOf: (thread) => machine(machineOf(thread)),
      storageOf(thread) {
        running.thread = thread;
        return storage(storageOf(site, thread));
      },
      mutation: mutant.server ?? {},
      log(level, event, fields = {}) {
        note(`${name} ${level} ${event} ${JSON.stringify(fields)}`);
        if (event === "copy will be restored") rules.excuseReads(site);
      },
      onTaken: () => rules.excuseReads(site),
      onWaiting(what) {
        if (site.running !== running || process.isDead()) return;
        site.waitsFor = what;
      },
      onStore(store) {
        if (site.running !== running || process.isDead()) return;
        site.current = store;
        const role = store?.isCopy ? "serves a copy" : "writes";
        note(`${name} ${store === null ? "serves nothing" : role}`);
      },
    };
    serve(parts, running.stopping.signal).then(
      () => noteEnd(site, running, null),
      (error) => {
        if (process.isDead()) return;
        if (!(error instanceof AppError)) note(`${error?.stack}`);
        noteEnd(site, running, messageOf(error));
      },
    );
  }

  /** As kill -9. @param ms until it starts again */
  function kill(site: Site, ms: number): void {
    site.isSupervised = false;
    site.host.pausedUntilMs = nowMs();
    if (site.running !== null) note(`${site.name} is killed`);
    site.running?.process.kill();
    Object.assign(site, { running: null, current: null, waitsFor: null });
    scheduler.after(ms, () => start(site));
  }

  function spoil(site: Site, ms: number, changed: Partial<Conditions>): void {
    const names = Object.keys(changed) as (keyof typeof healthy)[];
    const ended = Object.fromEntries(names.map((name) => [name, healthy[name]]));
    Object.assign(site.conditions, changed);
    scheduler.after(ms, () => void Object.assign(site.conditions, ended));
  }

  function cut(site: Site, { ms, value }: PlannedEvent, changed: Partial<Conditions>): void {
    spoil(site, ms, { ...changed, isRefused: value % 2 === 0 });
  }

  function failDisk(site: Site, ms: number, fault: "EIO" | "ENOSPC" | "EROFS"): void {
    site.disk.setFault(fault);
    site.diskFailedMs = nowMs() + ms;
    scheduler.after(ms, () => site.disk.setFault(null));
  }

  let isRecordLost = () => false;

  /** Deletes something of the archive, or changes its last bit. */
  function spoilObject(value: number, isDamage: boolean): void {
    const wanted = ["bases/", "chunks/", "log/", "heartbeats/", "generations/"][value % 5] ?? "";
    const keys = bucket.keys().filter((key) => key.startsWith(wanted));
    const key = keys.at(value % 2 === 0 ? -1 : (value >> 3) % Math.max(1, keys.length));
    if (key === undefined) return;
    note(`${key} is ${isDamage ? "damaged" : "deleted"}`);
    const before = bucket.body(key);
    isRecordLost = () =>
      key.startsWith("generations/") && !Bun.deepEquals(bucket.body(key), before);
    // The slot looks like one that was always empty.
    if (!isDamage && key.startsWith("log/")) rules.excuseAges();
    if (isDamage) bucket.damage(key);
    else bucket.delete(key);
  }

  const effects: Readonly<Record<Kind, (site: Site, event: PlannedEvent) => void>> = {
    kill: (site, { ms }) => kill(site, ms),
    crash(site, { value }) {
      site.disk.crashAfter(value % 40);
    },
    stop(site, { ms }) {
      const { running } = site;
      if (running === null) return;
      site.isSupervised = false;
      note(`${site.name} gets SIGTERM`);
      running.stopping.abort(new AppError("operator", "interrupted"));
      scheduler.after(10_000, () => {
        if (site.running === running) kill(site, MAX_RESTART_MS);
      });
      scheduler.after(ms, () => {
        site.isSupervised = true;
        start(site);
      });
    },
    "kill all": (_, { ms, value }) => {
      for (const site of sites)
        kill(site, value % 2 === 0 ? ms : ms + (site.host.random(4) * MAX_RESTART_MS) / 4);
    },
    pause(site, { ms }) {
      site.host.pausedUntilMs = nowMs() + ms;
    },
    clock(site, { value }) {
      const stepMs = [900, 5_000, 70_000, 86_400_000][(value >> 1) % 4] ?? 0;
      site.host.wallAheadMs += value % 2 === 0 ? stepMs : -stepMs;
    },
    cut: (site, event) => cut(site, event, { isCutOut: true, isCutBack: true }),
    "cut out": (site, event) => cut(site, event, { isCutOut: true }),
    "cut back": (site, event) => cut(site, event, { isCutBack: true }),
    away(_, event) {
      for (const site of sites) cut(site, event, { isCutOut: true });
    },
    errors: (site, { ms, value }) => spoil(site, ms, { errors: [1, 5, 12, 40][value % 4] ?? 0 }),
    lists: (site, { ms }) => spoil(site, ms, { failsLists: true }),
    late: (site, { ms, value }) => spoil(site, ms, { late: 1 + (value % 20) }),
    twice: (site, { ms, value }) => spoil(site, ms, { twice: 5 + (value % 40) }),
    slow: (site, { ms, value }) => spoil(site, ms, { slowness: 2 + (value % 20) }),
    full: (site, { ms }) => failDisk(site, ms, "ENOSPC"),
    EIO: (site, { ms }) => failDisk(site, ms, "EIO"),
    "read-only": (site, { ms }) => failDisk(site, ms, "EROFS"),
    "old disk"(site, { ms, value }) {
      kill(site, ms);
      const old = site.snapshots[value % Math.max(1, site.snapshots.length)];
      if (old !== undefined) site.disk.replace(old, value % 3 === 0);
    },
    "empty disk"(site, { ms }) {
      kill(site, ms);
      site.disk.replace(null, false);
    },
    "copied disk"(site, { ms, value }) {
      kill(site, ms);
      const other = sites[value % sites.length] ?? site;
      if (other !== site) site.disk.replace(other.disk.snapshot(), false);
    },
    import(site, { ms, value }) {
      kill(site, ms);
      if (!site.disk.exists() || site.disk.marker()?.isCopy === true) return;
      const command = startProcess(`${site.name}-import`, site.host);
      const database = site.disk.server(command);
      try {
        database.open();
        database.commit(`imported-${nowMs()}-${value}`);
        database.close();
      } catch (error) {
        note(`not imported: ${messageOf(error)}`);
      }
    },
    promote(site, { value }) {
      const noteEnd = (line: string) => {
        rules.promote();
        note(line);
      };
      rules.promote();
      const process = startProcess(`${site.name}p`, site.host);
      const reached = withRetries(storage(storageOf(site, process)), machineOf(process));
      const by = { writer: `${site.name}${nowMs()}`, holder: "archive promote" };
      promote(reached, value % 2 === 0, machineOf(process).nowMs(), by).then(
        () => noteEnd("promoted"),
        (error) => noteEnd(`not promoted: ${messageOf(error)}`),
      );
    },
    burst: (_, { ms }) => writeFast(nowMs() + Math.min(ms, MAX_BURST_MS)),
    delete: (_, { value }) => spoilObject(value, false),
    damage: (_, { value }) => spoilObject(value, true),
    forget: (_, { ms }) => {
      rules.excuse(nowMs() + FAULT_MS);
      rules.excuseAges();
      bucket.rollBack(nowMs() - ms);
      note("the storage has forgotten");
    },
  };

  function heal(): void {
    note("healed");
    for (const site of sites) {
      Object.assign(site.conditions, healthy);
      site.disk.setFault(null);
      site.disk.crashAfter(Number.POSITIVE_INFINITY);
      start(site);
    }
  }

  /** What a restore would bring now, with a storage that answers. */
  function restoreNow(): { words: ReadonlySet<string>; problem: string | null } {
    const host = createHost("restored", randomOf(seed, "restored"), scheduler);
    const process = startProcess("restored", host);
    const disk = createDisk(host);
    let problem: string | null = "it does not end";
    const target = disk.files(process).beginRestore();
    restoreTo(target, machineOf(process), bucket.storage, null)
      .then((restored) => {
        target.publish((file) => markerOfRestored(restored, false, file));
        problem = restored.warnings[0] ?? null;
      })
      .catch((error) => {
        problem = messageOf(error);
      });
    drainMicrotasks();
    return { words: disk.words(), problem };
  }

  /** @returns which row of docs/two-machines.md applies that waits for a person; `null` if none does */
  function findException(): string | null {
    const has = (...wanted: readonly Kind[]) =>
      plan.events.some(({ kind }) => wanted.includes(kind));
    if (has("forget")) return "the storage has forgotten what it confirmed";
    if (!isSync && has("old disk", "empty disk", "copied disk"))
      return "the last primary does not come back";
    if (!has("delete", "damage")) return null;
    // Only who writes has the record of its generation.
    if (isRecordLost() && sites.every(({ current }) => current?.isCopy !== false))
      return "no server has the record that is missing";
    const { words, problem } = restoreNow();
    const isWhole = problem === null && rules.missing(words) === undefined;
    const isSaved = sites.some(
      ({ disk }) => disk.exists() && rules.missing(disk.words()) === undefined,
    );
    return isWhole || isSaved ? null : `no disk has what is missing: ${problem}`;
  }

  /** A restore has everything, or says what is missing. */
  function checkRestore(exception: string | null): void {
    const { words, problem } = restoreNow();
    const mayLack = plan.events.some(({ kind }) => SPOILS.has(kind));
    const isUsed = rules.acknowledged.length > 0;
    if (problem !== null && isUsed && exception === null && !mayLack)
      rules.report("restore", problem);
    const lost = isSync ? rules.missing(words) : undefined;
    if (lost !== undefined && problem === null)
      rules.report("restore", `${lost.word} is missing, and not named`);
  }

  const random = randomOf(seed, "clients");
  let words = 0;
  let waiting = 0;
  let preferred = 0;

  /** A client sends a word again and again, until a server has acknowledged it. */
  async function send(word: string): Promise<void> {
    const clock = machineOf(clients);
    for (;;) {
      const site = sites[preferred % sites.length] as Site;
      const store = site.isRunning() ? site.current : null;
      try {
        if (store === null) throw new AppError("unavailable", "no server");
        const timeout = clock.sleep(CLIENT_TIMEOUT_MS).then(() => {
          throw new AppError("unavailable", "no response");
        });
        await Promise.race([store.write(word), timeout]);
        timeout.catch(() => {});
        rules.acknowledge(site, store, word);
        return;
      } catch (error) {
        note(`${site.name} rejects ${word}: ${messageOf(error)}`);
      }
      preferred += 1;
      await clock.sleep(RETRY_MS);
    }
  }

  const clients = startProcess("client", createHost("client", random, scheduler), (error) =>
    rules.report("bug", messageOf(error)),
  );

  function writeNext(maxWaiting: number): void {
    if (waiting >= maxWaiting) return;
    waiting += 1;
    words += 1;
    send(`w${words}`).then(
      () => {
        waiting -= 1;
      },
      (error) => rules.report("bug", `${error?.stack}`),
    );
  }

  function writeRegularly(): void {
    clients.after((plan.gapMs * (50 + random(100))) / 100, writeRegularly);
    writeNext(MAX_WAITING);
  }

  function writeFast(untilMs: number): void {
    if (nowMs() < untilMs) clients.after(BURST_GAP_MS, () => writeFast(untilMs));
    writeNext(MAX_BURST_WAITING);
  }

  function lookRegularly(bounds: () => Bounds | null): void {
    clients.after(LOOK_MS, () => lookRegularly(bounds));
    for (const site of sites) rules.look(site, bounds());
    if (nowMs() % SNAPSHOT_MS < LOOK_MS)
      for (const site of sites) site.snapshots.push(site.disk.snapshot());
  }

  return {
    sites,
    scheduler,
    bucket,
    rules,
    trace,
    note,
    start,
    heal,
    effects,
    findException,
    checkRestore,
    writeRegularly,
    lookRegularly,
  };
}
