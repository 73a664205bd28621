/** Plays a history, and compares all that is seen with the reference. */
import { broken, type Entry, explain, isRead, ruleOf } from "./agreement.ts";
import { callOf } from "./calls.ts";
import type { Call, Import, Read, Row, Rule, Write } from "./reference.ts";
import { answer, emptyState, promises, statuses, timeOf } from "./reference.ts";
import { type Clock, HOUR_MS, makeSteps, type OpenPort, PASSES_MS, type Step } from "./steps.ts";

type Result = Awaited<ReturnType<typeof play>>;

const EPOCH_MS = Date.UTC(2027, 0, 1);
/** On a full disk, for the first writes of a step. */
const MAX_FREE_BYTES = 2 ** 15;

const list = (table: Read["table"], query: Row = {}): Read => ({
  kind: "list",
  table,
  query: { limit: 1000, offset: 0, ...query },
});

/** Read after each step. The totals of orders in one status are stored apart. */
const reads: readonly Read[] = [
  ...(["users", "orders", "changes"] as const).map((table) => list(table)),
  { kind: "history", table: "users", query: { id: 2, limit: 1000, sort: "-id" } },
  { kind: "history", table: "orders", query: { id: 2, limit: 1, offset: 1 } },
  ...statuses
    .flatMap((status, at) => [[status], statuses.slice(at)])
    .map((status) => list("orders", { status, limit: 1, offset: 1 })),
];

export async function play(steps: readonly Step[], open: OpenPort) {
  const clock: Clock = { nowMs: EPOCH_MS };
  const port = await open(clock);
  /** The steps, and their calls with their outcomes. */
  const trace: unknown[] = [];
  /** The number of calls by what they came to. */
  const counts = new Map<Rule, number>();
  const note = (rule: Rule) => void counts.set(rule, (counts.get(rule) ?? 0) + 1);
  /** With keys. */
  const sent: Write[] = [];
  let state = emptyState;

  async function newChanges(): Promise<Row[]> {
    const outcome = await port.send(list("changes", { after: state.lastChange }));
    if (outcome.records === undefined) throw broken("changes", outcome);
    const changes: Row[] = JSON.parse(`[${outcome.records}]`);
    if (changes.some(({ id }, at) => id !== state.lastChange + at + 1))
      throw broken("changes", "their ids have a gap", changes);
    return changes;
  }

  async function compareLists(rule?: Rule): Promise<void> {
    for (const call of reads) {
      const [told, expected] = [await port.send(call), answer(state, call)];
      if (!Bun.deepEquals(told, expected))
        throw broken(rule ?? ruleOf(call, state, clock.nowMs), call, told, "instead of", expected);
    }
  }

  function makeEntries({ kind, seeds }: Step): Entry[] {
    const calls: Call[] = [];
    for (const seed of seeds) {
      let call = callOf(seed, state, sent, port.hasClock);
      // The changes of two imports look the same.
      if (call.kind === "import" && calls.some((one) => one.kind === "import"))
        call = { ...call, dryRun: true };
      // A deletion makes other keys forget what they have.
      const isLost = call.kind !== "write" || call.method === "DELETE";
      if (kind === "kill" && isLost) continue;
      // What has a key can be repeated, also when a server is busy.
      if (call.kind === "write" && (kind === "kill" || port.kill !== undefined))
        call = { ...call, key: call.key ?? `k${seed}` };
      if (call.kind === "write" && call.key !== null) sent.push(call);
      calls.push(call);
    }
    return calls.map((call) => ({ call, outcome: {} }));
  }

  async function sendAll(entries: readonly Entry[]): Promise<void> {
    const send = async (entry: Entry) => {
      entry.outcome = await port.send(entry.call);
      trace.push(entry);
    };
    const isLater = ({ call }: Entry) => isRead(call) && !port.hasMoments;
    await Promise.all(entries.filter((entry) => !isLater(entry)).map(send));
    await Promise.all(entries.filter(isLater).map(send));
  }

  /** A dry run says the same as the import after it, which changes nothing when it is repeated. */
  async function playImport(call: Import): Promise<void> {
    const entry: Entry = { call, outcome: {} };
    const told = await port.send({ ...call, dryRun: true });
    await sendAll([entry]);
    if (!Bun.deepEquals(told, entry.outcome))
      throw broken("dryRun", call, told, "and then", entry.outcome);
    state = explain(state, [entry], await newChanges(), clock.nowMs, note);
    const again = await port.send(call);
    if (/created|updated/.test(JSON.stringify(again)))
      throw broken("repeated", call, entry.outcome, "and then", again);
    note("repeated");
  }

  async function playCalls(step: Step): Promise<void> {
    const entries = makeEntries(step);
    const [first, second] = entries;
    if (first?.call.kind === "import" && second === undefined && !first.call.dryRun)
      return playImport(first.call);
    await Promise.all([sendAll(entries), step.kind === "kill" ? port.kill?.() : null]);
    state = explain(state, entries, await newChanges(), clock.nowMs, note);
  }

  /** Some calls fail, and are sent again when there is room. */
  async function playFull(step: Step): Promise<void> {
    const entries = makeEntries(step);
    port.fill?.((step.seeds[0] ?? 0) % MAX_FREE_BYTES);
    try {
      await sendAll(entries);
    } finally {
      port.fill?.(null);
    }
    const { failed = [], done = [] } = Object.groupBy(entries, ({ outcome }) =>
      outcome.code === "unavailable" ? "failed" : "done",
    );
    state = explain(state, done, await newChanges(), clock.nowMs, note);
    for (const _ of failed) note("unavailable");
    await sendAll(failed);
    state = explain(state, failed, await newChanges(), clock.nowMs, note);
  }

  async function expire(beforeMs: number): Promise<void> {
    await port.expire(new Date(beforeMs));
    const { changes, keys } = state;
    const first = changes.findIndex((one) => one.created_at >= timeOf(beforeMs));
    state = {
      ...state,
      // The newest one stays.
      changes: changes.slice(first < 0 ? -1 : first),
      keys: new Map([...keys].filter(([, { storedMs }]) => storedMs >= beforeMs)),
    };
  }

  async function playStep({ seeds, ...step }: Step): Promise<void> {
    // Of servers, no time passes: they are killed more often instead.
    const isTime = ["pass", "back", "expire"].includes(step.kind);
    const kind = isTime && port.kill !== undefined ? "kill" : step.kind;
    const ms = PASSES_MS[(seeds[0] ?? 0) % PASSES_MS.length] ?? 0;
    if (kind === "full" && port.fill !== undefined) await playFull({ kind, seeds });
    else if (/calls|kill|full/.test(kind)) await playCalls({ kind, seeds });
    else if (kind === "pass") clock.nowMs += ms;
    else if (kind === "back") clock.nowMs -= HOUR_MS / 6;
    else if (kind === "expire") await expire(clock.nowMs + 1_000 - ms);
    if (kind === "restart" || (kind === "kill" && port.kill === undefined)) {
      await port.restart();
      note("restart");
    }
    await compareLists(kind === "restart" ? kind : undefined);
  }

  async function compareCopy(): Promise<void> {
    const { problems, keys, ...copy } = await port.inspect();
    if (problems.length > 0) throw broken("check", problems);
    const byId = (one: Row, other: Row) => one.id - other.id;
    for (const table of ["users", "orders"] as const) {
      const rows = [...state[table].values()].sort(byId);
      if (!Bun.deepEquals(copy[table], rows)) throw broken("copy", copy[table], "instead of", rows);
    }
    const expected = [...state.keys].map(([key, { json }]) => `${key} ${json}`).sort();
    const told = keys.map(({ key, record }) => `${key} ${record}`).sort();
    if (!Bun.deepEquals(told, expected)) throw broken("copy", told, "instead of", expected);
    note("copy");
    note("check");
  }

  try {
    const { feed } = (await port.send(list("changes"))) as Row;
    state = { ...state, feed };
    await compareLists();
    for (const [at, step] of steps.entries()) {
      trace.push(`${at}: ${step.kind} ${step.seeds[0]}`);
      await playStep(step);
    }
    await compareCopy();
    return { broken: null, trace, counts };
  } catch (error) {
    const { rule, message, stack } = error as Error & { readonly rule?: Rule };
    const what = rule === undefined ? `${stack}` : message;
    return { broken: { rule: rule ?? ("bug" as const), what }, trace, counts };
  } finally {
    await port.close();
  }
}

/** Leaves out steps and calls, one at a time, as long as the same rule is broken. @returns lines for people */
export async function explainSeed(seed: number, rule: Rule, open: OpenPort): Promise<string> {
  let smallest: readonly Step[] = makeSteps(seed);
  const attempt = async (candidate: readonly Step[]) => {
    if ((await play(candidate, open)).broken?.rule === rule) smallest = candidate;
  };
  for (let at = smallest.length - 1; at >= 0; at -= 1) await attempt(smallest.toSpliced(at, 1));
  for (let at = 0; at < smallest.length; at += 1)
    for (let left = (smallest[at]?.seeds.length ?? 0) - 1; left >= 0; left -= 1) {
      const { kind, seeds } = smallest[at] as Step;
      await attempt(smallest.with(at, { kind, seeds: seeds.toSpliced(left, 1) }));
    }
  return describe(seed, rule, await play(smallest, open));
}

export function describe(seed: number, rule: Rule, { broken, trace }: Result): string {
  const lines = trace.map((one) => JSON.stringify(one));
  return [`seed ${seed}: ${promises[rule]}`, ...lines, broken?.what].join("\n");
}
