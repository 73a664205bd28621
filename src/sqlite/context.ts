import type { Database } from "bun:sqlite";
import type { NewChange } from "../change.ts";
import type { Clock } from "../clock.ts";
import type { IdempotencyStore } from "./idempotency.ts";
import type { ListReader } from "./lists.ts";
import type { Reader } from "./reader.ts";
import type { Writer } from "./writer.ts";

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
  readonly clock: Clock;
  /** Adds a change to the feed. Call it in the transaction that makes the change. */
  readonly recordChange: (change: NewChange) => void;
}
