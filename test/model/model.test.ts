// The world of machines: histories with faults, from seeds, on the real archive. What breaks a rule is shrunk and printed.
import { expect, test } from "bun:test";
import { isLong } from "../support/long.ts";
import { changeBeat, mutants, withoutProgress } from "./mutants.ts";
import { describePlan, kinds, makePlan, type Plan, type PlannedEvent, shrink } from "./plan.ts";
import { simulate } from "./simulate.ts";

const HISTORIES = Number(Bun.env["ARCHIVE_HISTORIES"] ?? (isLong ? 150 : 25));
const isSearch = HISTORIES > 150;

/** The first seeds that are known to break a rule with each planted fault, if it is not the first one. */
const SEEDS: Readonly<Record<string, number>> = {
  "slots are not created atomically": 29,
  "records are not created atomically": 47,
  "a slot replaces what is there": 11,
  "a refused slot counts as stored": 11,
  "a record replaces that of another server": 47,
  "U36: a new server that was slower keeps its database": 47,
  "U37: an opening that has failed ends the program": 79,
  "U39: a request that fails is not repeated, and ends an opening": 9,
  "a read that fails finds nothing": 28,
  "a server does not say what it waits for": 100,
  "the marker has no names": 83,
  "any position is in the WAL": 71,
  "the end is noted although the archive lacks it": 92,
  "a database that has diverged is not set aside": 10,
  "the clock on the wall measures intervals": 27,
};

const MAX_SEEDS = 2_000;

/** @returns the smallest history that breaks the same rule, for people */
function explain(seed: number, rule: string): string {
  const smallest = shrink(makePlan(seed), (plan) => simulate(plan).broken?.rule === rule);
  const { broken, trace } = simulate(smallest);
  return [describePlan(smallest), `${rule}: ${broken?.what}`, ...trace.slice(-200)].join("\n");
}

test("histories with faults lose nothing, do not fork, and end with one server that writes", () => {
  const planned = new Set<string>();
  for (let seed = 1; seed <= HISTORIES; seed += 1) {
    const plan = makePlan(seed);
    const { broken } = simulate(plan);
    expect(broken === null ? "" : explain(seed, broken.rule)).toBe("");
    for (const { kind } of plan.events) planned.add(kind);
  }
  if (isLong) expect(kinds.filter((kind) => !planned.has(kind))).toEqual([]);
}, 36_000_000);

test("a seed repeats its history", () => {
  for (const seed of [1, 2, 3]) {
    const plan = makePlan(seed);
    expect(simulate(plan).trace).toEqual(simulate(plan).trace);
  }
}, 60_000);

test("each kind of fault is planned together with each other one", () => {
  const pairs = new Set<string>();
  for (let seed = 1; seed <= MAX_SEEDS; seed += 1) {
    const { events } = makePlan(seed);
    for (const one of events) for (const other of events) pairs.add(`${one.kind}, ${other.kind}`);
  }
  const rare = /^(delete|damage|forget|copied disk), (delete|damage|forget|copied disk)$/;
  const wanted = kinds.flatMap((one) => kinds.map((other) => `${one}, ${other}`));
  const missing = wanted.filter((pair) => !pairs.has(pair));
  expect(missing.filter((pair) => !rare.test(pair))).toEqual([]);
});

// Without the planted fault, each of these seeds is among the histories above.
test.if(isLong || isSearch).each(Object.entries(mutants))(
  "a rule is broken if %s",
  (what, mutant) => {
    for (let seed = isSearch ? 1 : (SEEDS[what] ?? 1); seed <= MAX_SEEDS; seed += 1) {
      const { broken } = simulate(makePlan(seed), mutant);
      if (isSearch && broken !== null) console.log(`${what}: ${broken.rule}, seed ${seed}`);
      if (broken !== null) return;
    }
    expect().fail("no rule is broken");
  },
  3_600_000,
);

/** Of a server, and of another one that starts later if it has --standby. */
function history(standby: boolean, events: readonly Omit<PlannedEvent, "site">[]): Plan {
  const first = { latencyMs: standby ? 100 : 10, startMs: 0 };
  const sites = standby ? [first, { latencyMs: 10, startMs: 4_400 }] : [first];
  const common = { commit: "sync", encore: null, gapMs: 400 } as const;
  const planned = events.map((event) => ({ ...event, site: 0 }));
  return { ...makePlan(1), ...common, standby, sites, events: planned };
}

const oldDisk = { kind: "old disk", atMs: 20_500, ms: 1_000, value: 1 } as const;

test.each([
  [
    "is lost before its first base, and another goes on because it says so (U34)",
    history(true, [{ kind: "empty disk", atMs: 3_500, ms: 40_000, value: 0 }]),
    changeBeat({ hasBase: true }),
    "liveness",
  ],
  [
    "is refused behind a segment that is missing, when it lacks what follows (U40)",
    history(false, [{ kind: "delete", atMs: 20_000, ms: 0, value: 207 }, oldDisk]),
    withoutProgress,
    "loss",
  ],
  [
    "is refused with an older state when the only base was deleted",
    history(false, [{ kind: "delete", atMs: 20_000, ms: 0, value: 10 }, oldDisk]),
    withoutProgress,
    "loss",
  ],
] as const)("a server %s", (_what, plan, mutant, rule) => {
  expect(simulate(plan).broken).toBe(null);
  expect(simulate(plan, mutant).broken?.rule).toBe(rule);
});

test("a database is copied once more only if it is opened before the storage is asked (U41)", () => {
  const away = { kind: "away", atMs: 14_999, ms: 28_000, value: 1 } as const;
  const plan = history(false, [away, { kind: "kill", atMs: 15_000, ms: 1_000, value: 0 }]);
  expect(simulate(plan)).toMatchObject({ broken: null, bases: 0 });
  expect(simulate(plan, { server: { opensFirst: true } }).bases).toBe(1);
});
