/** What must hold in a history, whatever happens: see "What happens" in docs/two-machines.md. */
import { HEALED_MS, type Plan } from "./plan.ts";
import type { Store } from "./server.ts";

/** A machine, as clients and operators see it. */
export interface Seen {
  readonly name: string;
  readonly current: Store | null;
  /** How often its program has started. */
  readonly starts: number;
  /** What its `/health` says that it waits for. */
  readonly waitsFor: string | null;
  /** Whether its processes run, and nothing has stopped them. */
  readonly isRunning: () => boolean;
  /** What is wrong with its database; `null` if nothing is. */
  readonly damage: () => string | null;
}

const HEARTBEAT_MS = 5_000;
/** How long copies must be young before the next fault. */
const CALM_MS = 4_000;

/** When what must hold, in a history whose faults have ended. */
export function boundsOf({ takeoverMs, sites }: Plan) {
  // A database has a few chunks.
  const copyMs = 2_000 + 20 * Math.max(...sites.map(({ latencyMs }) => latencyMs));
  /** By then, one server acknowledges writes. */
  const servesMs = HEALED_MS + 2 * takeoverMs + 10_000 + copyMs;
  /** How much older than it is a copy may say to be. */
  const ageMarginMs = Math.min(HEARTBEAT_MS, takeoverMs / 4) + 1_000;
  /** By then, the others follow. */
  const followsMs = servesMs + 10_000 + copyMs;
  /** Until then, nothing happens, and the server that writes is lost. */
  const encoreMs = followsMs + CALM_MS;
  /** By then, another one writes. */
  const endMs = encoreMs + (servesMs - HEALED_MS);
  return { healedMs: HEALED_MS, servesMs, followsMs, encoreMs, endMs, ageMarginMs };
}

export type Bounds = ReturnType<typeof boundsOf>;

/** Of a copy that is served. */
const MAX_AGE_MS = 60_000;
/** With requests that take 10 s to fail. */
const MAX_OPENING_MS = 20_000;
/** While a server opens its database again, or copies it because the archive has no base, it serves nothing. */
const MAX_PAUSE_MS = 10_000;
/** Two heartbeats, or TAKEOVER_SECONDS, and the answer of a promotion. */
const MAX_UNKNOWING_MS = 12_000;

/**
 * @param isSync otherwise a server that is lost takes acknowledged words with it
 */
export function createRules(nowMs: () => number, isSync: boolean, note: (line: string) => void) {
  const acknowledged: { readonly word: string; readonly timeMs: number; readonly by: string }[] =
    [];
  let broken: { readonly rule: string; readonly what: string } | null = null;
  /** The store that has acknowledged the last word. */
  let last: Store | null = null;
  /** When and at which age each server served its copy last, as long as its program runs. */
  const served = new Map<string, { timeMs: number; bornMs: number; starts: number }>();
  /** Words that were acknowledged before may be lost: the storage has forgotten what it had confirmed. */
  let excusedMs = Number.NEGATIVE_INFINITY;
  let isAgeExcused = false;
  /** Until then, a server may not know that an operator has ended its log. */
  let unknowingMs = Number.NEGATIVE_INFINITY;

  function report(rule: string, what: string): void {
    if (broken !== null) return;
    broken = { rule, what: `${(nowMs() / 1000).toFixed(3)} s: ${what}` };
    note(`BROKEN ${rule}: ${what}`);
  }

  /** @returns the first acknowledged word that is missing */
  function missing(words: ReadonlySet<string>, fromMs = excusedMs) {
    return acknowledged.find(({ word, timeMs }) => timeMs > fromMs && !words.has(word));
  }

  /** A copy that is young enough is served, whatever happens. */
  function requireReads({ name, starts }: Seen, store: Store | null): void {
    if (store !== null && !store.isCopy) served.delete(name);
    else if (store !== null) {
      const bornMs = nowMs() - (store.ageMs() ?? 0);
      served.set(name, { timeMs: nowMs(), bornMs, starts });
    }
    if (store !== null) return;
    const before = served.get(name);
    if (before?.starts !== starts || nowMs() - before.timeMs < MAX_PAUSE_MS) return;
    if (nowMs() - before.bornMs < MAX_AGE_MS)
      report("reads", `${name} has served nothing since ${before.timeMs} ms`);
  }

  return {
    report,
    broken: () => broken,
    acknowledged,
    missing,
    /** Words that are acknowledged until then may be lost. */
    excuse(untilMs: number): void {
      excusedMs = untilMs;
    },
    /** Its copy counts for nothing any more, or the server opens it to write. */
    excuseReads({ name }: Seen): void {
      const before = served.get(name);
      if (before !== undefined && before.timeMs <= nowMs())
        before.timeMs = nowMs() + MAX_OPENING_MS;
    },
    /** From now on, the ages of copies may be less than true. */
    excuseAges(): void {
      isAgeExcused = true;
    },
    /** An operator ends the log of the server that writes. */
    promote(): void {
      unknowingMs = nowMs() + MAX_UNKNOWING_MS;
    },
    /** A client has the acknowledgement. */
    acknowledge({ name }: Seen, store: Store, word: string): void {
      acknowledged.push({ word, timeMs: nowMs(), by: name });
      note(`${name} acknowledges ${word}`);
      if (!isSync || store === last) return;
      last = store;
      const lost = missing(store.words());
      if (lost === undefined) return;
      const isOther = lost.by !== name;
      report(
        isOther ? "fork" : "loss",
        `${name} acknowledges ${word}, and lacks ${lost.word} of ${lost.by}`,
      );
    },
    /** What a server says about the age of its reads. @param bounds `null` if an exception applies */
    look(site: Seen, bounds: Bounds | null): void {
      const store = site.current;
      if (!site.isRunning()) served.delete(site.name);
      else requireReads(site, store);
      if (store === null || !site.isRunning()) return;
      const damage = excusedMs < 0 ? site.damage() : null;
      if (damage !== null) report("twice", `${site.name} is damaged: ${damage}`);
      const reportedMs = store.ageMs();
      const lost = isSync ? missing(store.words()) : undefined;
      const trueMs = lost === undefined ? 0 : nowMs() - lost.timeMs;
      const isUnknowing = !store.isCopy && reportedMs === null && nowMs() < unknowingMs;
      if ((reportedMs ?? 0) < trueMs && !isUnknowing && !(isAgeExcused && store.isCopy))
        report("age", `${site.name} is ${trueMs} ms old, and says ${reportedMs}`);
      const isCalm = bounds !== null && nowMs() >= bounds.followsMs && nowMs() < bounds.encoreMs;
      if (!isCalm || !isSync) return;
      if ((reportedMs ?? 0) > trueMs + bounds.ageMarginMs)
        report("age", `${site.name} keeps up, is ${trueMs} ms old, and says ${reportedMs}`);
    },
    /** Call it when one server must acknowledge writes. */
    requireService({ healedMs }: Bounds): void {
      if (!acknowledged.some(({ timeMs }) => timeMs > healedMs))
        report("liveness", "no server acknowledges writes");
    },
    /** Call it when one server must have acknowledged writes, but for an exception. */
    requireCommand(sites: readonly Seen[], { healedMs }: Bounds): void {
      if (acknowledged.some(({ timeMs }) => timeMs > healedMs)) return;
      const silent = sites.find(({ waitsFor }) => !waitsFor?.includes("`user-api "));
      if (silent !== undefined)
        report("named", `${silent.name} says that it waits for ${silent.waitsFor}`);
    },
    /** Call it when another server must write. */
    requireHandover({ encoreMs }: Bounds, site: Seen | null): void {
      if (site === null) return;
      const isDone = acknowledged.some(({ timeMs, by }) => timeMs > encoreMs && by !== site.name);
      if (!isDone) report("handover", `no other server writes in the place of ${site.name}`);
    },
    /** @returns the name of the server that has acknowledged the last word */
    writer: () => acknowledged.at(-1)?.by ?? null,
    /** Call it when the others must follow it. */
    requireFollowers(sites: readonly Seen[], { servesMs, ageMarginMs }: Bounds): void {
      const writers = new Set(
        acknowledged.filter(({ timeMs }) => timeMs > servesMs).map(({ by }) => by),
      );
      if (writers.size !== 1) report("liveness", `${writers.size} servers acknowledge writes`);
      for (const site of sites.filter(({ name }) => !writers.has(name))) {
        const store = site.current;
        // In async mode, a promotion gives up what was not in the archive.
        const fromMs = isSync ? excusedMs : servesMs;
        const lost = store?.isCopy ? missing(store.words(), fromMs) : undefined;
        if (!store?.isCopy) report("followers", `${site.name} does not follow`);
        else if (lost !== undefined && lost.timeMs < nowMs() - ageMarginMs)
          report("followers", `${site.name} lacks ${lost.word}`);
      }
    },
  };
}
