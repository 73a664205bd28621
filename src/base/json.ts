/**
 * A strict JSON parser. `JSON.parse` silently drops the first of two members with the same name, takes `5.00` for 5, and
 * recurses without a limit.
 * @see RFC 7493 (I-JSON)
 */
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

/**
 * No field is a fraction. `5.00` in an amount is more likely 500 cents than 5, so it becomes `NaN`, which every schema
 * rejects. `-0` becomes 0, which is equal to it everywhere.
 */
function toInteger(_name: string, value: unknown, context: { source?: string }): unknown {
  if (typeof value !== "number") return value;
  return /[.eE]/.test(context.source ?? "") ? Number.NaN : value + 0;
}

// `text[at]` would allocate a string for each character that is not in Latin-1.
const [QUOTE, BACKSLASH, OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET, COLON, COMMA] =
  Buffer.from('"\\{}[]:,');

function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) break;
    if (code === BACKSLASH) at += 1;
  }
  return at + 1;
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

function failTooMany(what: string): never {
  const range = { min: 0, max: MAX_PARTS };
  failField("body", "length", `must have at most ${MAX_PARTS} ${what}`, range);
}

/**
 * Scans the text. Malformed JSON is left to the parser.
 * @returns the path of the first duplicate member; `null` if there is none
 * @throws {AppError} validation_failed if the text is nested too deeply, or has too many members or commas
 */
function findDuplicate(text: string): string | null {
  const containers: OpenContainer[] = [];
  let duplicate: string | null = null;
  let start = 0;
  let end = 0;
  let members = 0;
  let commas = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      start = at;
      end = endOfString(text, at);
      at = end - 1;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      if (containers.length === MAX_DEPTH) {
        failField("body", "format", `must not be nested deeper than ${MAX_DEPTH} levels`);
      }
      containers.push({ names: code === OPEN_BRACE ? new Set() : null, member: 0 });
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      containers.pop();
    } else if (code === COLON) {
      members += 1;
      if (members > MAX_PARTS) failTooMany("members");
      const inner = containers.at(-1);
      if (!inner?.names) continue;
      const name = text.slice(start, end);
      // A long one is not parsed again at each colon.
      start = end;
      inner.member = name.includes("\\") ? String(parse(name)) : name.slice(1, -1);
      if (inner.names.has(inner.member)) duplicate ??= pathOf(containers);
      inner.names.add(inner.member);
    } else if (code === COMMA) {
      commas += 1;
      if (commas > MAX_PARTS) failTooMany("commas");
      const inner = containers.at(-1);
      if (typeof inner?.member === "number") inner.member += 1;
    }
  }
  return duplicate;
}

interface Counts {
  members: number;
  commas: number;
}

/** @returns the number of names or more, as texts can contain `":`, if no white space is before a colon */
function countNames(text: string): number {
  let count = 0;
  for (let at = text.indexOf('":'); at !== -1; at = text.indexOf('":', at + 2)) count += 1;
  return count;
}

/** Adds the members and commas of a value. @returns whether nothing exceeds a limit */
function countParts(value: object, counts: Counts, depth = 1): boolean {
  if (depth > MAX_DEPTH) return false;
  const names = Array.isArray(value) ? null : Object.keys(value);
  const parts = value as Readonly<Record<string | number, unknown>>;
  const { length } = names ?? (value as readonly unknown[]);
  if (names !== null) counts.members += length;
  counts.commas += Math.max(0, length - 1);
  if (counts.members > MAX_PARTS || counts.commas > MAX_PARTS) return false;
  // With `Object.values` or an iterator it takes several times as long.
  for (let at = 0; at < length; at += 1) {
    const part = parts[names?.[at] ?? at];
    if (typeof part === "object" && part !== null && !countParts(part, counts, depth + 1))
      return false;
  }
  return true;
}

/** Whether a text is known to pass `findDuplicate`, which takes several times as long. @param value of the text */
function isPlain(text: string, value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  const counts = { members: 0, commas: 0 };
  // A duplicate is a name that the parser has dropped: there would be more names than members.
  return countParts(value, counts) && !/"\s+:/.test(text) && countNames(text) === counts.members;
}

/** @returns `undefined` if the text is not JSON */
function tryParse(text: string, reviver?: typeof toInteger): unknown {
  try {
    return JSON.parse(text, reviver as never);
  } catch {
    return undefined;
  }
}

function parse(text: string, reviver?: typeof toInteger): unknown {
  const value = tryParse(text, reviver);
  return value === undefined ? failField("body", "format", "must be valid JSON") : value;
}

/**
 * @returns the value; a number that is not written as an integer is `NaN`
 * @throws {AppError} validation_failed if the text is not JSON, is nested deeper than 16 levels, has more than 2,500
 * members or commas, or a duplicate member
 */
export function parseJson(text: string): unknown {
  // Most texts have none of these characters, and looking for them is faster than the pattern.
  const isUnusual = (/\d[.eE]/.test(text) || text.includes("-0")) && UNUSUAL_NUMBER.test(text);
  const plain = isUnusual ? undefined : tryParse(text);
  if (plain !== undefined && isPlain(text, plain)) return plain;
  const duplicate = findDuplicate(text);
  const value = plain ?? parse(text, isUnusual ? toInteger : undefined);
  if (duplicate !== null) failDuplicate(duplicate);
  return value;
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
