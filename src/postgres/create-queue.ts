/**
 * Batches of creates, each with its own outcome. If one of them makes its batch fail, or wait for a locked row, each one
 * runs alone.
 */
import { type CreateResult, type IdempotencyKey, replay } from "../idempotency.ts";
import { type Author, type RecordText, textLength } from "../record.ts";
import { createBatchQueue, itemAt } from "./batch.ts";
import type { StoreContext } from "./context.ts";
import { isLockTimeout } from "./errors.ts";
import { BATCH_LOCK_TIMEOUT } from "./row-locks.ts";

const MAX_CREATES = 256;
/** Others wait for these and share a statement, because a transaction costs many times as much as a row. */
const MAX_BATCHES = 3;
/** Maximum length of all texts in a batch, in UTF-16 code units. */
const MAX_BATCH_LENGTH = 2 ** 19;

/** Creates a record, once per key. @throws {AppError} idempotency_key_reused if the key belongs to a different request */
export type Create<Fields, Row> = (
  fields: Fields,
  key: IdempotencyKey | null,
  author: Author,
) => Promise<CreateResult<Row>>;

export interface PendingCreate<Fields> {
  readonly fields: Fields;
  readonly key: IdempotencyKey | null;
  readonly author: Author;
}

export type Outcome<Row> =
  | { readonly kind: "created"; readonly record: RecordText<Row> }
  /** The key was stored before, with the record, as JSON, that its request created. */
  | { readonly kind: "stored"; readonly fingerprint: string; readonly record: string }
  /** The record cannot be created. */
  | { readonly kind: "rejected" }
  /** The create must run alone. */
  | { readonly kind: "undecided" }
  /** The key has changed since it was read. The create must run again. */
  | { readonly kind: "conflict" };

/** Identifies a key. */
function nameOf({ owner, key }: IdempotencyKey): string {
  return `${owner} ${key}`;
}

/** How the records of one table are created. */
export interface CreateRules<Fields> {
  /** Values that must be unique, apart from the key: creates with a common one do not run at the same time. */
  readonly conflictKeysOf: (fields: Fields) => readonly string[];
  /** Identifies the row that the create locks. */
  readonly lockOf: (fields: Fields) => string;
  /** @throws {AppError} always: the error of a record that is rejected */
  readonly throwRejected: () => never;
}

export interface CreateQueueOptions<Fields, Row> extends CreateRules<Fields> {
  /**
   * Runs creates in one transaction.
   * @param lockTimeout how long it waits for a locked row; `null` for the lock timeout of the connection
   */
  readonly run: (
    creates: readonly PendingCreate<Fields>[],
    lockTimeout: string | null,
  ) => Promise<readonly Outcome<Row>[]>;
  /** @returns whether nothing was created, and one of several creates may be the reason */
  readonly mayBeCausedByOneItem: (error: unknown) => boolean;
  readonly nextBatchMs?: number;
}

/** @returns a function that creates records of one table */
export function createCreateQueue<Fields extends object, Row>(
  { db: { limiter }, runApart }: StoreContext,
  {
    conflictKeysOf,
    lockOf,
    throwRejected,
    run,
    mayBeCausedByOneItem,
    nextBatchMs,
  }: CreateQueueOptions<Fields, Row>,
): Create<Fields, Row> {
  function runAlone(create: PendingCreate<Fields>): Promise<Outcome<Row>> {
    return runApart(lockOf(create.fields), async () => itemAt(await run([create], null), 0));
  }

  async function runBatch(creates: readonly PendingCreate<Fields>[]) {
    const outcomes = await run(creates, BATCH_LOCK_TIMEOUT);
    return creates.map((create, at) => {
      const outcome = itemAt(outcomes, at);
      return outcome.kind === "undecided" ? runAlone(create) : outcome;
    });
  }

  const enqueue = createBatchQueue<PendingCreate<Fields>, Outcome<Row>>({
    run: runBatch,
    splitsOn: (error, count) => isLockTimeout(error) || (count > 1 && mayBeCausedByOneItem(error)),
    runAlone,
    maxItems: MAX_CREATES,
    maxBatches: MAX_BATCHES,
    ...(nextBatchMs !== undefined && { nextBatchMs }),
    maxSize: MAX_BATCH_LENGTH,
    clientOf: ({ author }) => author,
    sizeOf: ({ fields }) => textLength(fields),
    conflictKeysOf: ({ fields, key }) =>
      key === null ? conflictKeysOf(fields) : [...conflictKeysOf(fields), nameOf(key)],
  });

  async function create(pending: PendingCreate<Fields>): Promise<CreateResult<Row>> {
    for (;;) {
      const outcome = await enqueue(pending);
      if (outcome.kind === "created") return { record: outcome.record, replayed: false };
      if (outcome.kind === "rejected") throwRejected();
      if (outcome.kind === "stored") return replay(outcome, pending.key);
    }
  }

  return (fields, key, author) => limiter.admit("write", () => create({ fields, key, author }));
}
