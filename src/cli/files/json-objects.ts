/** Splits a file of JSON into its objects: NDJSON, or an array of any size, of which one object is in memory at a time. */
import { fail } from "../../base/error.ts";
import { decodeText } from "./encoding.ts";

/** In characters. */
const MAX_OBJECT = 4 * 2 ** 20;

/** An object, or what should be one. */
export interface ObjectText {
  /** On which it begins, from 1. */
  readonly line: number;
  readonly text: string;
  /** `null` if the text is no JSON. */
  readonly value: unknown;
}

/** @returns where the first object ends; 0 if it goes on in the next chunk */
function endOfObject(text: string): number {
  let depth = 0;
  for (const { 0: token, index } of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|["{}]/gs)) {
    // A text that goes on.
    if (token === '"') return 0;
    if (token === "{") depth += 1;
    if (token === "}" && --depth === 0) return index + 1;
  }
  return 0;
}

/** @returns `null` if the text is no JSON */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Blank lines are skipped. @throws {AppError} validation_failed if it is not UTF-8, or an object is too large */
export async function* readObjects(input: AsyncIterable<Uint8Array>): AsyncGenerator<ObjectText> {
  let [text, line] = ["", 1];
  let isArray: boolean | null = null;
  const linesIn = (part: string) => part.split("\n").length - 1;
  function take(end: number): ObjectText {
    const taken = text.slice(0, end);
    text = text.slice(end);
    const start = taken.search(/[^\s,[]|$/);
    const first = line + linesIn(taken.slice(0, start));
    line += linesIn(taken);
    const object = taken.slice(start).trim();
    return { line: first, text: object, value: parse(object) };
  }
  for await (const chunk of decodeText(input)) {
    text += chunk;
    isArray ??= /^\s*\[/.test(text);
    const findEnd = () => (isArray ? endOfObject(text) : text.indexOf("\n") + 1);
    for (let end = findEnd(); end > 0; end = findEnd()) {
      const object = take(end);
      if (object.text !== "") yield object;
    }
    if (text.length > MAX_OBJECT)
      fail("validation_failed", `the record after line ${line} has more than 4 MiB`);
  }
  const rest = take(text.length);
  // An array that ends between two objects is cut as well.
  if (rest.text !== (isArray ? "]" : "")) yield rest;
}
