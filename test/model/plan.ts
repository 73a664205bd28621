/** What happens in a history: events at fixed times, so that those that do not matter can be left out. */
import { type Random, randomOf } from "./clock.ts";

export const kinds = [
  // Of a machine, of its way to the storage, of its disk, and of the archive and its clients.
  ...(["kill", "crash", "stop", "kill all", "pause", "clock"] as const),
  ...(["cut", "cut out", "cut back", "away", "errors", "lists", "late", "twice", "slow"] as const),
  ...(["full", "EIO", "read-only", "old disk", "empty disk", "copied disk", "import"] as const),
  ...(["promote", "burst", "delete", "damage", "forget"] as const),
] as const;

export type Kind = (typeof kinds)[number];

/** After these, the disk of each server has what it had. */
const harmless =
  "kill,kill all,stop,pause,cut,cut out,cut back,away,errors,lists,late,twice,slow,promote,burst";

/** What happens to the server that writes when all is well, and another one must write then. */
const encores = "kill,empty disk,cut,cut out,cut back,pause,full,EIO,read-only";

const kindsOf = (names: string) => names.split(",") as Kind[];

export interface PlannedEvent {
  readonly kind: Kind;
  readonly atMs: number;
  /** Of the machine that it is about. */
  readonly site: number;
  /** How long it lasts, or how long the server is down. */
  readonly ms: number;
  /** From 0 to 999: what the kind makes of it. */
  readonly value: number;
}

export interface Plan {
  readonly seed: number;
  readonly commit: "sync" | "async";
  readonly takeoverMs: number;
  readonly standby: boolean;
  readonly encore: Kind | null;
  /** Mean time between two new words. */
  readonly gapMs: number;
  /** Of each machine: the latency of its way, and when it starts first. */
  readonly sites: readonly { readonly latencyMs: number; readonly startMs: number }[];
  readonly events: readonly PlannedEvent[];
}

/** When all faults have ended. */
export const HEALED_MS = 45_000;
const FIRST_MS = 500;

/** Kinds of which a history has at most one, and only some have it: what they leave is an exception more often. */
const RARE: ReadonlySet<Kind> = new Set(["delete", "damage", "forget", "copied disk"]);
const common = kinds.filter((kind) => !RARE.has(kind));

function pick<Item>(random: Random, items: readonly Item[]): Item {
  return items[random(items.length)] as Item;
}

function makeEvent(random: Random, kind: Kind, sites: number, starts: readonly number[]) {
  const times = [
    ...starts,
    FIRST_MS + random(2_000),
    5_000 + random(37_000),
    5_000 + random(37_000),
  ];
  const atMs = Math.min(HEALED_MS - 2_000, pick(random, times));
  const wantedMs = pick(random, [200, 1_000, 3_000, 8_000, 20_000, 40_000]) + random(500);
  const ms = Math.min(HEALED_MS - atMs, wantedMs);
  return { kind, atMs, site: random(sites), ms, value: random(1_000) };
}

/** Events come in groups, because two faults at the same time do more than one after the other. */
function makeEvents(random: Random, sites: number): PlannedEvent[] {
  const events: PlannedEvent[] = [];
  const groups = 1 + random(4);
  const pool = random(4) === 0 ? kindsOf(harmless) : common;
  for (let group = 0; group < groups; group += 1) {
    const near = events.map(({ atMs, ms }) => [atMs + random(1_500), atMs + ms + random(1_500)]);
    for (let count = 1 + random(3); count > 0; count -= 1)
      events.push(makeEvent(random, pick(random, pool), sites, near.flat()));
  }
  if (random(5) === 0) events.push(makeEvent(random, pick(random, [...RARE]), sites, []));
  return events.sort((one, other) => one.atMs - other.atMs);
}

export function makePlan(seed: number): Plan {
  const random = randomOf(seed, "plan");
  const count = pick(random, [1, 2, 2, 2, 2, 3, 3]);
  const isTogether = random(4) === 0;
  return {
    seed,
    commit: random(10) === 0 ? "async" : "sync",
    takeoverMs: pick(random, [3_000, 3_000, 3_000, 10_000]),
    standby: count > 1 || random(2) === 0,
    encore: count > 1 ? pick(random, [...kindsOf(encores), null]) : null,
    gapMs: pick(random, [60, 150, 400, 1_500, 5_000]),
    sites: Array.from({ length: count }, (_, at) => ({
      latencyMs: pick(random, [1, 10, 10, 100]),
      startMs: isTogether ? random(3) : at * 3_000 + random(4_000),
    })),
    events: makeEvents(random, count),
  };
}

function describe({ kind, atMs, site, ms, value }: PlannedEvent): string {
  return `  ${(atMs / 1000).toFixed(3)} s: ${kind} of machine ${site}, ${ms} ms, value ${value}`;
}

/** @returns lines for people */
export function describePlan(plan: Plan): string {
  const { seed, commit, takeoverMs, standby, encore, gapMs, sites, events } = plan;
  const machines = sites.map(
    ({ latencyMs, startMs }) => `${latencyMs} ms away, starts at ${startMs} ms`,
  );
  const role = standby ? "--standby" : "alone";
  const head = `seed ${seed}, ${commit}, ${role}, TAKEOVER ${takeoverMs} ms, a word each ${gapMs} ms, encore: ${encore}`;
  return [
    head,
    ...machines.map((text, at) => `  machine ${at}: ${text}`),
    ...events.map(describe),
  ].join("\n");
}

/** Leaves out events, one at a time, as long as the history stays broken. */
export function shrink(plan: Plan, isBroken: (plan: Plan) => boolean): Plan {
  let smallest = plan;
  for (let at = plan.events.length - 1; at >= 0; at -= 1) {
    const events = smallest.events.filter((_, index) => index !== at);
    const candidate = { ...smallest, events };
    if (isBroken(candidate)) smallest = candidate;
  }
  const withoutEncore = { ...smallest, encore: null };
  return smallest.encore !== null && isBroken(withoutEncore) ? withoutEncore : smallest;
}
