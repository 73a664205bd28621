import type { Database } from "bun:sqlite";
import type { NewChange } from "../../domain/change.ts";
import type { Reader } from "../engine/reader.ts";
import type { Writer } from "../engine/writer.ts";
import type { IdempotencyStore } from "./idempotency.ts";
import type { ListReader } from "./lists.ts";

/** What the stores of the tables share. */
export interface StoreContext {
  /**
   * SQLite looks at the value of a variable while it plans `limit $n`, or `column = $value` next to a range, an order
   * or `max`, and therefore prepares the statement again at each execution. Write `+$n` and `+$value` there.
   */
  readonly db: Database;
  readonly reader: Reader;
  readonly writer: Writer;
  readonly lists: ListReader;
  readonly idempotency: IdempotencyStore;
  /** Returns the current time: RFC 3339 in UTC with milliseconds. */
  readonly timestamp: () => string;
  /** Adds a change to the feed. Call it in the transaction that makes the change. */
  readonly recordChange: (change: NewChange) => void;
}
