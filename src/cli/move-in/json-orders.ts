/** Splits a file of JSON into orders: NDJSON, or an array of any size, of which one order is in memory at a time. */
import { fail } from "../../base/error.ts";
import { hasMember } from "../../base/json.ts";
import { decodeText } from "../files/encoding.ts";
import type { Members } from "./values.ts";

/** In characters. */
const MAX_ORDER = 4 * 2 ** 20;

/** The text of an order, or of what should be one. */
export interface JsonOrder {
  /** On which it begins, from 1. */
  readonly line: number;
  readonly text: string;
}

/** @returns where the first object ends; -1 if it goes on in the next chunk */
function endOfObject(text: string): number {
  const token = /"[^"\\]*(?:\\.[^"\\]*)*"|["{}]/gs;
  let depth = 0;
  for (let found = token.exec(text); found !== null; found = token.exec(text)) {
    // A text that goes on.
    if (found[0] === '"') return -1;
    if (found[0] === "{") depth += 1;
    if (found[0] === "}" && --depth === 0) return token.lastIndex;
  }
  return -1;
}

/** Blank lines are skipped. @throws {AppError} validation_failed if it is not UTF-8, or an order is too large */
export async function* readJsonOrders(input: AsyncIterable<Uint8Array>): AsyncGenerator<JsonOrder> {
  let [text, line] = ["", 1];
  let isArray: boolean | null = null;
  function take(end: number): JsonOrder {
    const taken = text.slice(0, end);
    const start = taken.search(/[^\s,[]|$/);
    const linesIn = (part: string) => part.split("\n").length - 1;
    const order = { line: line + linesIn(taken.slice(0, start)), text: taken.slice(start).trim() };
    line += linesIn(taken);
    text = text.slice(end);
    return order;
  }
  for await (const chunk of decodeText(input)) {
    text += chunk;
    isArray ??= /^\s*\[/.test(text);
    const findEnd = () => (isArray ? endOfObject(text) : text.indexOf("\n") + 1);
    for (let end = findEnd(); end > 0; end = findEnd()) {
      const order = take(end);
      if (order.text !== "") yield order;
    }
    if (text.length > MAX_ORDER)
      fail("validation_failed", `the order after line ${line} has more than 4 MiB`);
  }
  const rest = take(text.length);
  // An array that ends between two orders is cut as well.
  if (rest.text !== (isArray ? "]" : "")) yield rest;
}

/** @returns `null` if the text is no object with an id */
export function parseOrder(text: string): Members | null {
  try {
    const value: unknown = JSON.parse(text);
    return hasMember(value, "id") ? value : null;
  } catch {
    return null;
  }
}
