/**
 * Whether what the calls of a step came to, and the changes since, agree with the reference. No order is searched for: the feed
 * says in which order calls had an effect, and each other one agrees with some moment of the step.
 */
import { judge } from "./imports.ts";
import type { Call, Import, Outcome, Read, Row, Rule, State, Write } from "./reference.ts";
import { AUTHOR, answer, changeOf, decide, storeKey, timeOf, withRecords } from "./reference.ts";

export interface Entry {
  readonly call: Call;
  outcome: Outcome;
}

export const isRead = (call: Call): call is Read => call.kind !== "write" && call.kind !== "import";

export function ruleOf(call: Call, state: State, nowMs: number): Rule {
  if (call.kind === "write") return decide(state, call, nowMs, 0).rule;
  if (call.kind === "import") return call.dryRun ? "dryRun" : "import";
  return call.table === "changes" ? "changes" : call.kind;
}

export function broken(rule: Rule, ...what: unknown[]): Error {
  const words = what.map((one) => (typeof one === "string" ? one : JSON.stringify(one)));
  return Object.assign(new Error(words.join("\n  ")), { rule });
}

/** @returns the state after an import, and how many of the changes are its own; `null` if none is */
function importedBy(
  state: State,
  call: Import,
  outcome: Outcome,
  changes: readonly Row[],
  nowMs: number,
) {
  const next = changes.findIndex(({ token }) => token !== null);
  const own = next < 0 ? changes : changes.slice(0, next);
  const { results } = outcome;
  if (own.length === 0 || call.dryRun || results === undefined) return null;
  const after = judge(state, call, results, own, nowMs);
  if (typeof after === "string") throw broken("import", after);
  return { rule: "import" as const, after, count: own.length };
}

/** @returns the state after a write if it explains the first of the changes; `null` if it does not */
function writtenBy(state: State, call: Write, outcome: Outcome, change: Row, nowMs: number) {
  const { json = "{}", replayed, isRepeated } = outcome;
  const { id, version } = JSON.parse(json);
  const { id: _, ...seen } = change;
  // It is that of an import, which may have made the same.
  if (seen.token === null) return null;
  if (id !== seen.record_id || version !== seen.version || (replayed && !isRepeated)) return null;
  const { rule, after, outcome: expected } = decide(state, call, nowMs, id);
  if (after === undefined || expected.json !== json) return null;
  const before = state[call.table].get(id);
  const made = changeOf(rule, call.table, JSON.parse(json), AUTHOR, timeOf(nowMs), before);
  if (made.type !== seen.type) return null;
  if (!Bun.deepEquals(seen, made)) throw broken("changes", change, "instead of", made);
  const next = withRecords(state, call.table, new Map([[id, after]]), [made]);
  storeKey(next, call, json, nowMs);
  return { rule, after: next, count: 1 };
}

function agrees(state: State, { call, outcome }: Entry, nowMs: number): boolean {
  const { isRepeated, ...told } = outcome;
  if (isRead(call)) return Bun.deepEquals(answer(state, call), told);
  if (call.kind === "import") {
    const changes = call.dryRun ? null : [];
    return typeof judge(state, call, told.results ?? [], changes, nowMs) !== "string";
  }
  const { after, outcome: expected } = decide(state, call, nowMs, 0);
  // Whether the first response was lost, or there was none, cannot be told.
  const wanted = isRepeated && "json" in told ? { ...expected, replayed: told.replayed } : expected;
  return after === undefined && Bun.deepEquals(wanted, told);
}

/**
 * A replay may be that of a write which changed nothing, or of one that was made before its response was lost. A write that
 * was rejected has stored no key, and may have come before another one with its key.
 */
function inOrder(entries: ReadonlySet<Entry>): readonly Entry[] {
  const rank = ({ outcome: { code, json, replayed } }: Entry) => {
    if (replayed || code === "idempotency_key_reused") return 2;
    return Number(json !== undefined);
  };
  return [...entries].sort((one, other) => rank(one) - rank(other));
}

/**
 * @param note is called with what each call came to
 * @returns the state after a step. @throws if the calls and the changes do not agree with the reference
 */
export function explain(
  state: State,
  entries: readonly Entry[],
  changes: readonly Row[],
  nowMs: number,
  note: (rule: Rule) => void,
): State {
  const states = [state];
  const newest = () => states.at(-1) ?? state;
  const rest = new Set(entries);

  function takeEffect(left: readonly Row[]) {
    const before = newest();
    for (const entry of inOrder(rest)) {
      const { call, outcome } = entry;
      if (isRead(call)) continue;
      const effect =
        call.kind === "import"
          ? importedBy(before, call, outcome, left, nowMs)
          : writtenBy(before, call, outcome, left[0] ?? {}, nowMs);
      if (effect === null) continue;
      const id = effect.rule === "created" ? left[0]?.record_id : Number.POSITIVE_INFINITY;
      if (id <= state.lastIds[call.table]) throw broken("created", `the id ${id} was given before`);
      rest.delete(entry);
      return effect;
    }
    const wrong = [...rest].find(({ outcome }) =>
      outcome.json?.startsWith(`{"id":${left[0]?.record_id},`),
    );
    const rule = wrong === undefined ? "changes" : ruleOf(wrong.call, before, nowMs);
    throw broken(rule, "no call explains the change", left[0]);
  }

  for (let at = 0; at < changes.length; ) {
    const { rule, after, count } = takeEffect(changes.slice(at));
    note(rule);
    states.push(after);
    at += count;
  }
  for (const entry of inOrder(rest)) {
    const { call, outcome } = entry;
    const at = states.findIndex((one) => agrees(one, entry, nowMs));
    const rule = ruleOf(call, states[at] ?? newest(), nowMs);
    if (at < 0) {
      const expected = isRead(call) ? answer(newest(), call) : rule;
      throw broken(rule, call, "comes to", outcome, "instead of", expected);
    }
    note(rule);
    if (call.kind !== "write" || outcome.json === undefined || rule === "replayed") continue;
    for (const one of states.slice(at)) storeKey(one, call, outcome.json, nowMs);
  }
  return newest();
}
