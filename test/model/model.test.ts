// The world of machines: histories with faults, from seeds, on the real archive. What breaks a rule is shrunk and printed.
import { expect, test } from "bun:test";
import { mutants } from "./mutants.ts";
import { describePlan, kinds, makePlan, shrink } from "./plan.ts";
import type { Rule } from "./rules.ts";
import { simulate } from "./simulate.ts";

const HISTORIES = Number(Bun.env["ARCHIVE_HISTORIES"] ?? 500);

/** Seeds with which each planted fault is known to break a rule. */
const SEEDS: Readonly<Record<string, number>> = {
  "slots are not created atomically": 29,
  "records are not created atomically": 63,
  "a slot replaces what is there": 11,
  "a refused slot counts as stored": 11,
  "a record replaces that of another server": 63,
  "seals are not stored": 3,
  "segments are not stored, now and then": 1,
  "lists lack the newest object": 3,
  "heartbeats are not stored": 1,
  "the marker has no names": 83,
  "the marker does not say that it is a copy": 36,
  "the marker is kept in memory": 105,
  "the state of the file never changes": 1,
  "the WAL of a copy is not rebuilt": 1,
  "any position is in the WAL": 1,
  "progress is not compared": 104,
  "a part of the WAL is skipped": 1,
  "the base has what was in the file when it was opened": 31,
  "checkpoints do not wait for the archive": 83,
  "the end is noted although the archive lacks it": 92,
  "a copy skips segments": 1,
  "a copy is not shown": 1,
  "the WAL of a copy is not emptied": 1,
  "writes are acknowledged before the archive has them": 1,
  "a repeated write is made again": 1,
  "reads do not say how old they are": 1,
  "a database that has diverged is not set aside": 10,
  "the clock on the wall measures intervals": 27,
  "only the disk counts": 1,
  "nobody takes over": 3,
};

const isLong = HISTORIES > 500;
const MAX_SEEDS = 2_000;

/** @returns the smallest history that breaks the same rule, for people */
function explain(seed: number, rule: Rule): string {
  const smallest = shrink(makePlan(seed), (plan) => simulate(plan).broken?.rule === rule);
  const { broken, trace } = simulate(smallest);
  return [describePlan(smallest), `${rule}: ${broken?.what}`, ...trace.slice(-200)].join("\n");
}

test("histories with faults lose nothing, do not fork, and end with one server that writes", () => {
  const counts = new Map<string, number>();
  for (let seed = 1; seed <= HISTORIES; seed += 1) {
    const { broken, faults } = simulate(makePlan(seed));
    expect(broken === null ? "" : explain(seed, broken.rule)).toBe("");
    const pairs = faults.flatMap((one, at) => faults.slice(at + 1).map((other) => [one, other]));
    const names = [...faults, ...pairs.map((pair) => pair.sort().join(" and "))];
    for (const name of new Set(names)) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  expect(kinds.filter((kind) => !counts.has(kind))).toEqual([]);
  if (isLong) console.log([...counts].map(([name, count]) => `${name}: ${count}`).join(", "));
}, 36_000_000);

test("a seed repeats its history", () => {
  for (const seed of [1, 2, 3]) {
    const plan = makePlan(seed);
    expect(simulate(plan).trace).toEqual(simulate(plan).trace);
  }
});

test("each kind of fault is planned together with each other one", () => {
  const pairs = new Set<string>();
  for (let seed = 1; seed <= MAX_SEEDS; seed += 1)
    for (const one of makePlan(seed).events)
      for (const other of makePlan(seed).events) pairs.add(`${one.kind}, ${other.kind}`);
  const rare = /^(delete|damage|forget|copied disk), (delete|damage|forget|copied disk)$/;
  const wanted = kinds.flatMap((one) => kinds.map((other) => `${one}, ${other}`));
  const missing = wanted.filter((pair) => !pairs.has(pair));
  expect(missing.filter((pair) => !rare.test(pair))).toEqual([]);
});

// Without the planted fault, each of these seeds is among the histories above.
test.each(Object.entries(mutants))(
  "a rule is broken if %s",
  (what, mutant) => {
    let seed = isLong ? 1 : (SEEDS[what] ?? 1);
    const last = isLong ? MAX_SEEDS : seed;
    while (seed < last && simulate(makePlan(seed), mutant).broken === null) seed += 1;
    const { broken } = simulate(makePlan(seed), mutant);
    if (isLong) console.log(`${what}: ${broken?.rule}, seed ${seed}`);
    expect(broken).not.toBe(null);
  },
  3_600_000,
);

test("a database is copied once more only if it is opened before the storage is asked (U41)", () => {
  const away = { kind: "away", atMs: 14_999, site: 0, ms: 28_000, value: 1 } as const;
  const killed = { kind: "kill", atMs: 15_000, site: 0, ms: 1_000, value: 0 } as const;
  const sites = [{ latencyMs: 10, startMs: 0 }];
  const one = { commit: "sync", standby: false, encore: null, gapMs: 400 } as const;
  const plan = { ...makePlan(1), sites, events: [away, killed], ...one };
  expect(simulate(plan)).toMatchObject({ broken: null, bases: 0 });
  expect(simulate(plan, { server: { opensFirst: true } }).bases).toBe(1);
});
