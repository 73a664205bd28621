/**
 * What the contract says of an import, however it is planned: lines that are the same record, or would have the same key, are
 * equal or rejected; lines that are possible together are made; nothing else changes. The rules of one line are the domain's.
 */
import { AppError } from "../../../src/base/error.ts";
import { sortMembers } from "../../../src/base/json.ts";
import { orderImport, userImport } from "../../../src/domain/import-rules.ts";
import { Order } from "../../../src/domain/order.ts";
import { User } from "../../../src/domain/user.ts";
import type { Import, Row, State } from "./reference.ts";
import { changeOf, nextVersion, timeOf, withRecords } from "./reference.ts";

type Line = ReturnType<typeof readLine>;

function readLine(state: State, call: Import, given: Row, result: string, time: string) {
  const rules: any = call.table === "users" ? userImport : orderImport;
  const rows = [...state[call.table].values()];
  const keysOf = (row: Row): string[] => rules.keysOf(row).map((key: string[]) => key.join(" "));
  const ownerOf = (key: string) => rows.find((row) => keysOf(row).includes(key)) ?? null;
  const { id } = given;
  // Two people of another system can share an email: then the reference tells who it is.
  const owner = keysOf(given)
    .map(ownerOf)
    .find((row, at) => row !== null && (at === 0 || row.reference === null));
  /** The stored record that it is. */
  const target: Row | null = (id === undefined ? owner : state[call.table].get(id)) ?? null;
  const named = rules.namedUserOf(given);
  const isNamed = (user: Row) =>
    userImport.keysOf(user as never).some((key) => Bun.deepEquals(key, named));
  const userId = Array.isArray(named) ? [...state.users.values()].find(isNamed)?.id : named;
  /** A new record of it. */
  const whole: Row = rules.complete(given, id ?? 0, time, userId);
  const contentOf = (row: Row) => (id === undefined ? rules.contentOf(row, given) : row);
  const isSame = target !== null && Bun.deepEquals(contentOf(target), contentOf(whole), true);
  /** The record after it; `null` if the record does not allow that. */
  let after: Row | null = target ?? whole;
  try {
    if (target !== null && call.update) after = rules.merge(target, given, userId) as Row;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    after = null;
  }
  const changes = target === null || call.update;
  if (changes && call.table === "orders" && !state.users.has(userId)) after = null;
  /** What it comes to, if the owners give up its keys. */
  function decide(): string {
    if (after === null || userId === undefined || (!changes && !isSame)) return "rejected";
    if (target === null) return "created";
    return Bun.deepEquals(target, after, true) ? "unchanged" : "updated";
  }
  /** Those that it names, and those of the record after it. */
  const keys = [...new Set([...keysOf(given), ...(after === null ? [] : keysOf(after))])];
  const ids = after === null ? [] : keysOf(after).map((key) => ownerOf(key)?.id ?? target?.id);
  /** The stored records that have one of them, but for the target. */
  const owners: number[] = ids.filter((one) => one !== target?.id);
  return { given, target, whole, after, keys, owners, alone: decide(), result };
}

const idOf = ({ given, target }: Line): number | undefined => target?.id ?? given.id;

/** @returns the lines that have a key or a record in common, directly or by others */
function groupsOf(lines: readonly Line[]): Line[][] {
  let groups: { names: Set<string>; lines: Line[] }[] = [];
  for (const line of lines) {
    const ids = [idOf(line), ...line.owners].filter((id) => id !== undefined);
    const group = { names: new Set([...line.keys, ...ids.map(String)]), lines: [line] };
    for (const near of groups.filter(({ names }) => !names.isDisjointFrom(group.names))) {
      groups = groups.filter((other) => other !== near);
      group.names = group.names.union(near.names);
      group.lines.push(...near.lines);
    }
    groups.push(group);
  }
  return groups.map((group) => group.lines);
}

const isDistinct = (values: readonly unknown[]) => new Set(values).size === values.length;

/** Whether each line can be what it is alone, since all keys of others are given up. */
function isPossible(group: readonly Line[]): boolean {
  const ids = group.map(idOf).filter((id) => id !== undefined);
  const isFree = ({ alone, owners }: Line) =>
    alone !== "rejected" && owners.every((owner) => ids.includes(owner));
  return isDistinct(ids) && isDistinct(group.flatMap(({ keys }) => keys)) && group.every(isFree);
}

/** Lines that wait for a key which a later one gives up come last: new records get their ids in this order. */
function inOrder(made: readonly Line[]): Line[] {
  const waiting = new Set<Line>();
  for (const [at, line] of made.entries()) {
    const givers = made.filter(({ target }) => line.owners.includes(target?.id));
    if (givers.some((giver) => made.indexOf(giver) > at || waiting.has(giver))) waiting.add(line);
  }
  return [...made.filter((line) => !waiting.has(line)), ...waiting];
}

/**
 * @param changes those of the import, in the feed; `null` for a dry run
 * @returns the state after it, or what is wrong with it
 */
export function judge(
  state: State,
  call: Import,
  results: readonly string[],
  changes: readonly Row[] | null,
  nowMs: number,
): State | string {
  const { table } = call;
  const time = timeOf(nowMs);
  const lines = new Map<string, Line>();
  for (const [at, given] of call.lines.entries()) {
    const result = results[at] ?? "missing";
    const text = JSON.stringify(sortMembers(given));
    const equal = lines.get(text);
    if (equal === undefined) lines.set(text, readLine(state, call, given, result, time));
    else if (result !== (equal.result === "rejected" ? "rejected" : "unchanged"))
      return `line ${at + 1} is equal to an earlier one, and ${result}`;
  }
  for (const group of groupsOf([...lines.values()])) {
    const told = group.map(({ result }) => result);
    const expected = isPossible(group) ? group.map(({ alone }) => alone) : ["rejected"];
    if (told.length === expected.length && !Bun.deepEquals(told, expected))
      return `${JSON.stringify(group.map(({ given }) => given))}: ${told} instead of ${expected}`;
    const accepted = group.filter(({ result }) => result !== "rejected");
    const ids = accepted.map(idOf).filter((id) => id !== undefined);
    if (!isDistinct(ids) || !isDistinct(accepted.flatMap(({ keys }) => keys)))
      return `accepted as one record: ${JSON.stringify(accepted.map(({ given }) => given))}`;
  }
  if (changes === null) return state;
  const made = [...lines.values()].filter(({ result }) => /created|updated/.test(result));
  const isNew = ({ type, record_id }: Row) =>
    type.endsWith("created") && !made.some(({ given }) => given.id === record_id);
  const newIds = changes.filter(isNew).map(({ record_id }) => record_id);
  newIds.sort((one, other) => one - other);
  if (newIds[0] <= state.lastIds[table]) return `the id ${newIds[0]} was given before`;
  const columns = Object.keys((table === "users" ? User : Order).properties);
  const records = new Map<number, Row>();
  const hasIds = call.lines.some(({ id }) => id !== undefined);
  const byTime = ({ whole: one }: Line, { whole: other }: Line) =>
    Number(one.created_at > other.created_at) - Number(one.created_at < other.created_at);
  // New orders get their ids by time, if none has one.
  const planned = table === "users" || hasIds ? made : made.toSorted(byTime);
  const expected = inOrder(planned).map(({ given, target, whole, after, result }) => {
    const row: Row =
      result === "created"
        ? { ...whole, id: given.id ?? newIds.shift() ?? 0 }
        : nextVersion(target ?? whole, after ?? {}, time);
    records.set(row.id, Object.fromEntries(columns.map((name) => [name, row[name]])));
    return changeOf(result, table, row, null, time, target ?? row);
  });
  const seen = changes.map(({ id: _, ...change }) => change);
  const sorted = (all: readonly Row[]) => all.map((one) => JSON.stringify(one)).sort();
  if (!Bun.deepEquals(sorted(seen), sorted(expected)))
    return `its changes are ${JSON.stringify(seen)} instead of ${JSON.stringify(expected)}`;
  return withRecords(state, table, records, seen);
}
