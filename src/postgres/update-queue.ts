/**
 * Batches of updates and deletes of single records, each with its own outcome. Those that fail, or cannot share a
 * statement, do not hold up the others: they run apart, one record at a time.
 */
import type { Author, RecordTable, RecordText } from "../record.ts";
import { createBatchQueue, itemAt } from "./batch.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { isStatementError } from "./errors.ts";
import { versionConflict } from "./retry.ts";
import { BATCH_LOCK_TIMEOUT, recordName } from "./row-locks.ts";

const MAX_UPDATES = 64;
/** Others wait for these and share a statement, because a transaction costs many times as much as a row. */
const MAX_BATCHES = 3;

interface Update<Values, Row> {
  readonly kind: "update";
  readonly values: Values;
  /** The response. */
  readonly record: RecordText<Row>;
  /** Whether it may wait for a transaction that has not locked the record itself. */
  readonly mayWait: boolean;
}

interface Removal<Row> {
  readonly kind: "remove";
  /** The response. */
  readonly record: RecordText<Row>;
}

/** Nothing is to be written, or everything has been. */
interface Done<Row> {
  readonly kind: "done";
  /** The response; `null` if the record does not exist. */
  readonly record: RecordText<Row> | null;
}

/**
 * Decides what a request writes. It is called again with a later version if the record has changed since.
 * @throws {AppError} if the request is rejected
 */
type Decide<Stored, Values, Row> = (
  stored: Stored,
  time: Date,
) => Update<Values, Row> | Removal<Row> | Done<Row>;

/**
 * Runs an update or delete, after the earlier ones of the same record.
 * @returns `null` if the record does not exist
 */
export type RunUpdate<Stored, Values, Row> = (
  id: number,
  author: Author,
  decide: Decide<Stored, Values, Row>,
) => Promise<RecordText<Row> | null>;

/** A record that is written if it still has the version that was read. */
export interface Target<Stored> {
  readonly stored: Stored;
  readonly author: Author;
  readonly time: Date;
}

/** A record with its new values. */
export interface UpdatedTarget<Stored, Values> extends Target<Stored> {
  readonly values: Values;
}

/**
 * Writes records in one transaction.
 * @param lockTimeout how long it waits for a locked row; `null` for the lock timeout of the connection
 * @returns the ids of those that had the version
 */
export type WriteTargets<Written> = (
  session: Session,
  targets: readonly Written[],
  lockTimeout: string | null,
) => Promise<readonly number[]>;

/** How the records of one table are read and written. */
export interface UpdateParts<Stored, Values> {
  readonly table: RecordTable;
  /** @returns the records that exist */
  readonly read: (session: Session, ids: readonly number[]) => Promise<ReadonlyMap<number, Stored>>;
  readonly update: WriteTargets<UpdatedTarget<Stored, Values>>;
  readonly remove?: WriteTargets<Target<Stored>>;
  /** Whether a read and a write are one transaction. The default is no. */
  readonly transaction?: boolean;
  /** Called with the error of a write of one record. @throws {AppError} if the request is rejected */
  readonly explain?: (error: unknown) => void;
}

/** @returns a function that runs updates and deletes of one table */
export function createUpdateQueue<
  Stored extends { readonly id: number },
  Values extends object,
  Row,
>(
  { db: { layout, limiter, runAdmitted }, now, runApart }: StoreContext,
  { table, read, update, remove, transaction = false, explain }: UpdateParts<Stored, Values>,
): RunUpdate<Stored, Values, Row> {
  interface Pending {
    readonly id: number;
    readonly author: Author;
    readonly decide: Decide<Stored, Values, Row>;
  }
  type Planned = Target<Stored> & (Update<Values, Row> | Removal<Row>);
  type Step = Planned | Done<Row> | { readonly kind: "rejected"; readonly error: unknown };

  function plan({ author, decide }: Pending, stored: Stored, time: Date): Step {
    try {
      const decision = decide(stored, time);
      return decision.kind === "done" ? decision : { ...decision, stored, author, time };
    } catch (error) {
      return { kind: "rejected", error };
    }
  }

  /** Reads the records, and decides what to write. */
  async function planAll(session: Session, updates: readonly Pending[]): Promise<readonly Step[]> {
    const ids = updates.map(({ id }) => id);
    const found = await read(session, ids);
    const time = now();
    return updates.map((pending) => {
      const record = found.get(pending.id);
      return record === undefined ? { kind: "done", record: null } : plan(pending, record, time);
    });
  }

  /** @returns the ids of the records that it has written */
  async function writeAll(
    session: Session,
    steps: readonly Step[],
    isAlone: boolean,
  ): Promise<ReadonlySet<number>> {
    const lockTimeout = isAlone ? null : BATCH_LOCK_TIMEOUT;
    const updates = steps.filter((step) => step.kind === "update");
    const removals = steps.filter((step) => step.kind === "remove");
    const written = new Set<number>();

    async function write(ids: Promise<readonly number[]>): Promise<void> {
      try {
        for (const id of await ids) written.add(id);
      } catch (error) {
        if (isAlone) {
          explain?.(error);
          throw error;
        }
        // One of several may be the reason: what was not written runs alone.
        if (!isStatementError(error)) throw error;
      }
    }
    if (updates.length > 0) await write(update(session, updates, lockTimeout));
    if (remove !== undefined && removals.length > 0) {
      await write(remove(session, removals, lockTimeout));
    }
    return written;
  }

  function canShare(step: Step): step is Planned {
    return step.kind === "update" ? !step.mayWait : step.kind === "remove";
  }

  /** Runs an update alone, until the record has the version that was read. */
  function runAlone(pending: Pending): Promise<RecordText<Row> | null> {
    async function work(session: Session): Promise<RecordText<Row> | null> {
      const step = itemAt(await planAll(session, [pending]), 0);
      if (step.kind === "done") return step.record;
      if (step.kind === "rejected") throw step.error;
      const written = await writeAll(session, [step], true);
      if (!written.has(pending.id)) throw versionConflict;
      return step.record;
    }
    const row = recordName(table, pending.id);
    return runApart(row, () => runAdmitted("write", work, { transaction }));
  }

  async function runTogether(session: Session, updates: readonly Pending[]) {
    const steps = await planAll(session, updates);
    const written = await writeAll(session, steps.filter(canShare), false);
    return steps.map((step): Step => {
      const isWritten = canShare(step) && written.has(step.stored.id);
      return isWritten ? { kind: "done", record: step.record } : step;
    });
  }

  async function runBatch(updates: readonly Pending[]) {
    const work = (session: Session) => runTogether(session, updates);
    const steps = await runAdmitted("write", work, { requests: updates.length });
    return steps.map((step, at) => {
      if (step.kind === "done") return step.record;
      if (step.kind === "rejected") return Promise.reject(step.error);
      return runAlone(itemAt(updates, at));
    });
  }

  const enqueue = createBatchQueue({
    run: runBatch,
    // The read has failed, so nothing is written.
    splitsOn: isStatementError,
    runAlone,
    maxItems: MAX_UPDATES,
    maxBatches: MAX_BATCHES,
    conflictKeysOf: ({ id }) => [`${id}`],
    clientOf: ({ author }) => author,
  });
  return (id, author, decide) =>
    limiter.admit("write", () => {
      const pending = { id, author, decide };
      // On Citus, a batch of users would be a longer transaction on all servers, and one of orders a two-phase commit.
      return layout === "citus" ? runAlone(pending) : enqueue(pending);
    });
}
