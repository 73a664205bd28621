/** Writes in batches. If one fails or waits for a locked row, each of its batch runs alone: no other write waits for that row. */
import type { MaybePromise } from "../../base/maybe-promise.ts";
import type { Author } from "../../domain/record.ts";
import { BATCH_LOCK_TIMEOUT_MS, type Session } from "../server/connection.ts";
import { isStatementError, mayConcernOneItem, mayRetryWrite } from "../server/errors.ts";
import { runAgain } from "../server/retry.ts";
import { createBatchQueue, itemAt } from "./batch.ts";
import { MAX_WRITE_BATCHES, type StoreContext } from "./context.ts";

const ALONE_LOCK_TIMEOUT_MS = 1_000;

/** @throws the error of the write, or `runAgain` if another write came between, or it must run alone */
export type Outcome<Result> = () => Result;

export interface WriteQueueOptions<Item, Result> {
  readonly maxItems: number;
  /** Runs writes in one transaction. @param isAlone whether it may wait for a locked row */
  readonly run: (
    session: Session,
    items: readonly Item[],
    isAlone: boolean,
  ) => Promise<readonly Outcome<Result>[]>;
  readonly mustRunAlone?: (item: Item) => boolean;
  /** Whether the statements of a batch must be one transaction, e.g. because each is more than one. The default is no. */
  readonly isTransaction?: (items: readonly Item[]) => boolean;
  readonly conflictKeysOf: (item: Item) => readonly string[];
  readonly lockOf: (item: Item) => string;
}

export function createWriteQueue<Item extends { readonly author: Author }, Result>(
  { db, placement, runForRow, pendingWrites }: StoreContext,
  options: WriteQueueOptions<Item, Result>,
): (item: Item) => Promise<Result> {
  const { maxItems, conflictKeysOf, lockOf } = options;
  async function runItems(session: Session, items: readonly Item[], isAlone: boolean) {
    for (const statement of placement.beforeWrite) await session.script(statement);
    return options.run(session, items, isAlone);
  }

  function runAlone(item: Item): Promise<Result> {
    const work = async (session: Session) => itemAt(await runItems(session, [item], true), 0)();
    const limits = { lockTimeoutMs: ALONE_LOCK_TIMEOUT_MS, mayRetry: mayRetryWrite };
    return runForRow(lockOf(item), () => db.run("write", work, limits));
  }

  async function runBatch(items: readonly Item[]): Promise<readonly MaybePromise<Result>[]> {
    // Otherwise each of its statements is committed by itself.
    const isTransaction = placement.beforeWrite.length > 0 || options.isTransaction?.(items);
    let isBeforeCommit = false;
    const work = async (session: Session) => {
      isBeforeCommit = isTransaction === true;
      const outcomes = await runItems(session, items, false);
      isBeforeCommit = false;
      return outcomes;
    };
    try {
      const outcomes = await db.run("write", work, {
        requests: items.length,
        mayRetry: mayRetryWrite,
        ...(isTransaction && { lockTimeoutMs: BATCH_LOCK_TIMEOUT_MS }),
      });
      return items.map(async (item, at) => {
        try {
          return itemAt(outcomes, at)();
        } catch (error) {
          if (error === runAgain) return runAlone(item);
          throw error;
        }
      });
    } catch (error) {
      // Before the commit it may also be that of a worker, which others of the writes do not need.
      const mayConcernOne = isBeforeCommit ? mayConcernOneItem : isStatementError;
      if (!mayConcernOne(error)) throw error;
      return items.map(runAlone);
    }
  }

  const enqueue = createBatchQueue<Item, Result>({
    run: runBatch,
    maxItems,
    maxBatches: MAX_WRITE_BATCHES,
    conflictKeysOf,
    clientOf: ({ author }) => author,
  });

  return async (item) => {
    pendingWrites.count += 1;
    try {
      return await (options.mustRunAlone?.(item) ? runAlone(item) : enqueue(item));
    } finally {
      pendingWrites.count -= 1;
    }
  };
}
