/** A strict parser (RFC 7493): `JSON.parse` drops duplicate members, takes `5.00` for 5, and recurses without a limit. */
import { failDuplicate, failField } from "./error.ts";
import { displayField } from "./validator.ts";

const MAX_DEPTH = 16;
/** Maximum number of members, and of commas. The largest record has 2,064 members: many more take long to validate. */
const MAX_PARTS = 2_500;

export function hasMember<Name extends string>(
  value: unknown,
  name: Name,
): value is Record<Name, unknown> {
  return typeof value === "object" && value !== null && Object.hasOwn(value, name);
}

/** @returns the value with the members of every object sorted, so that equal values have equal JSON */
export function sortMembers(value: unknown, last = { names: [""], sorted: [""] }): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((part) => sortMembers(part, last));
  const members = value as Readonly<Record<string, unknown>>;
  const names = Object.keys(members);
  // The objects of an array mostly have the same names, and sorting takes half of the time.
  if (names.length !== last.names.length || names.some((name, at) => name !== last.names[at]))
    [last.names, last.sorted] = [names, names.toSorted()];
  // Without a prototype, `__proto__` is an ordinary name.
  const sorted: Record<string, unknown> = Object.create(null);
  for (const name of last.sorted) sorted[name] = sortMembers(members[name], last);
  return sorted;
}

/** `-0`, or a number with a fraction or an exponent. Times and UUIDs in texts do not match. */
const UNUSUAL_NUMBER = /(?:^|[[,]|"\s*:)\s*(?:-0|-?\d+[.eE])/;

/** No field is a fraction: `5.00` is more likely 500 cents than 5, and becomes `NaN`, which no schema accepts. `-0` becomes 0. */
function toInteger(_name: string, value: unknown, context: { source?: string }): unknown {
  if (typeof value !== "number") return value;
  return /[.eE]/.test(context.source ?? "") ? Number.NaN : value + 0;
}

interface OpenContainer {
  /** Names of the members so far; `null` for an array. */
  readonly names: Set<string> | null;
  member: string | number;
}

function pathOf(containers: readonly OpenContainer[]): string {
  return containers
    .map(({ names, member }) =>
      names === null ? `[${member}]` : `.${displayField(String(member))}`,
    )
    .join("")
    .replace(/^\./, "");
}

// `text[at]` would allocate a string for each character that is not in Latin-1.
const [QUOTE, BACKSLASH] = Buffer.from('"\\');

function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text.charCodeAt(at) !== QUOTE)
    at += text.charCodeAt(at) === BACKSLASH ? 2 : 1;
  return at + 1;
}

/** @param text of JSON. @returns the path of the first duplicate member; `null` if there is none */
function findDuplicate(text: string): string | null {
  const containers: OpenContainer[] = [];
  const tokens = /["{}[\],:]/g;
  let [start, end] = [0, 0];
  for (let found = tokens.exec(text); found !== null; found = tokens.exec(text)) {
    const [token] = found;
    const inner = containers.at(-1);
    if (token === '"') {
      start = found.index;
      end = endOfString(text, start);
      tokens.lastIndex = end;
    } else if (token === "{") containers.push({ names: new Set(), member: "" });
    else if (token === "[") containers.push({ names: null, member: 0 });
    else if (token === "}" || token === "]") containers.pop();
    else if (typeof inner?.member === "number") inner.member += 1;
    else if (token === ":" && inner?.names != null) {
      const name: string = JSON.parse(text.slice(start, end));
      inner.member = name;
      if (inner.names.has(name)) return pathOf(containers);
      inner.names.add(name);
    }
  }
  return null;
}

/** @returns the number of names or more, as texts can contain `":`, if no white space is before a colon */
function countNames(text: string): number {
  let count = 0;
  for (let at = text.indexOf('":'); at !== -1; at = text.indexOf('":', at + 2)) count += 1;
  return count;
}

function requireAtMost(count: number, what: string): void {
  const range = { min: 0, max: MAX_PARTS };
  if (count > range.max)
    failField("body", "length", `must have at most ${range.max} ${what}`, range);
}

/** Adds the members and commas of a value. @throws {AppError} validation_failed if they are too many, or nested too deeply */
function countParts(value: object, counts: Record<"members" | "commas", number>, depth = 1): void {
  if (depth > MAX_DEPTH)
    failField("body", "format", `must not be nested deeper than ${MAX_DEPTH} levels`);
  const names = Array.isArray(value) ? null : Object.keys(value);
  const parts = value as Readonly<Record<string | number, unknown>>;
  const { length } = names ?? (value as readonly unknown[]);
  if (names !== null) counts.members += length;
  counts.commas += Math.max(0, length - 1);
  requireAtMost(counts.members, "members");
  requireAtMost(counts.commas, "commas");
  // With `Object.values` or an iterator it takes several times as long.
  for (let at = 0; at < length; at += 1) {
    const part = parts[names?.[at] ?? at];
    if (typeof part === "object" && part !== null) countParts(part, counts, depth + 1);
  }
}

function parse(text: string, reviver?: typeof toInteger): unknown {
  try {
    return JSON.parse(text, reviver as never);
  } catch {
    return failField("body", "format", "must be valid JSON");
  }
}

/**
 * @returns the value; a number that is not written as an integer is `NaN`
 * @throws {AppError} validation_failed if the text is not JSON, is nested deeper than 16 levels, has more than 2,500
 * members or commas, or a duplicate member
 */
export function parseJson(text: string): unknown {
  const value = parse(text);
  const counts = { members: 0, commas: 0 };
  if (typeof value === "object" && value !== null) countParts(value, counts);
  // The parser has dropped duplicates: then there are more names than members. Looking for them takes several times as long.
  const isPlain = !/"\s+:/.test(text) && countNames(text) === counts.members;
  const duplicate = isPlain ? null : findDuplicate(text);
  if (duplicate !== null) failDuplicate(duplicate);
  // Most texts have none of these characters, and looking for them is faster than the pattern.
  const isUnusual = (/\d[.eE]/.test(text) || text.includes("-0")) && UNUSUAL_NUMBER.test(text);
  return isUnusual ? parse(text, toInteger) : value;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** @throws {AppError} validation_failed as `parseJson`, and if the bytes are not UTF-8 */
export function parseJsonBytes(bytes: Uint8Array): unknown {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return failField("body", "format", "must be valid UTF-8");
  }
  return parseJson(text);
}
