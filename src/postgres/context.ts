import type { LargePages } from "../large-page.ts";
import type { RunInOrder } from "./batch.ts";
import type { Database } from "./connection.ts";

/** What the stores of a database share. */
export interface StoreContext {
  readonly db: Database;
  readonly largePages: LargePages;
  /** Runs a create that waits for a locked row. One at a time waits for each row. */
  readonly runLocked: RunInOrder;
  readonly now: () => Date;
}
