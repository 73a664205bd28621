import type { Database } from "bun:sqlite";
import type { ChangedRecord, ChangeType } from "../../domain/change.ts";
import type { Author } from "../../domain/record.ts";
import type { Reader } from "../engine/reader.ts";
import type { Writer } from "../engine/writer.ts";
import type { IdempotencyStore } from "./idempotency.ts";

export interface StoreContext {
  readonly db: Database;
  readonly reader: Reader;
  readonly writer: Writer;
  readonly idempotency: IdempotencyStore;
  /** Returns the current time: RFC 3339 in UTC with milliseconds. */
  readonly timestamp: () => string;
  /** Adds a change to the feed. Call it in the transaction that makes the change. @see changeOf */
  readonly noteChange: (type: ChangeType, record: ChangedRecord, author: Author) => void;
}
