/**
 * Batched creates. Records that are created in one turn of the event loop, or while others are being created, share
 * one transaction: on several servers, its statements and its commit cost many times as much as a row. A create that
 * is alone has fewer and simpler statements.
 */
import type { RecordTable, RecordText } from "../../record.ts";
import { itemAt } from "../batch.ts";
import type { Session } from "../connection.ts";
import type { StoreContext } from "../context.ts";
import {
  type Create,
  type CreateRules,
  createCreateQueue,
  type Outcome,
  type PendingCreate,
} from "../create-queue.ts";
import { isConstraintViolation, sqlState } from "../errors.ts";
import { expiryTime } from "../idempotency.ts";
import type { Created } from "../outbox.ts";
import { nextNumbers, tableNumbers } from "./id-lock.ts";
import { claimKey, insertKeys } from "./idempotency.ts";
import { sequentialMode } from "./settings.ts";

/**
 * Small batches cost almost as much as large ones, so the next batch waits for the one before, which takes 15 to 30 ms,
 * unless that one waits for a lock.
 */
const NEXT_BATCH_MS = 100;

/** For a create that runs alone: workers do not know the lock timeout of the connection. */
const ALONE_LOCK_TIMEOUT = "3s";

/** First number of the advisory locks on batches; the second is that of the table. */
const BATCH_LOCK = 0x75616261;
/**
 * Batches of one table run one after the other on the whole cluster. Two that wait for each other's rows on different
 * workers would be a deadlock, which Citus detects after 2 s.
 */
const lockBatches = `select pg_advisory_xact_lock(${BATCH_LOCK}, $1)`;

/** How records of one table are created. `Stored` is a record with JSON columns as text. */
export interface CitusCreateParts<Fields, Stored, Row> extends CreateRules<Fields> {
  readonly table: RecordTable;
  /** @returns whether each record cannot be created */
  readonly findRejected: (
    session: Session,
    allFields: readonly Fields[],
  ) => Promise<readonly boolean[]>;
  readonly newRecord: (number: number, fields: Fields, time: string) => Stored;
  readonly toRecord: (stored: Stored) => RecordText<Row>;
  /** Both record the changes as well. */
  readonly insertOne: (session: Session, created: Created<Stored>, time: Date) => Promise<void>;
  readonly insertMany: (
    session: Session,
    created: readonly Created<Stored>[],
    time: Date,
  ) => Promise<void>;
  /**
   * Called if a record violates a constraint.
   * @throws {AppError} unavailable, or the same error if it does not concern the fields
   */
  readonly explainViolation: (error: unknown, fields: Fields) => Promise<Outcome<Row>>;
}

/** Waits for imports, with the connection's lock timeout; assigns numbers; then sets the lock timeout for rows. */
async function assignNumbers(
  session: Session,
  table: RecordTable,
  count: number,
  lockTimeout: string | null,
): Promise<readonly number[]> {
  const rows = await session.all<{ number: number }>(nextNumbers(table), count);
  const timeout = lockTimeout ?? ALONE_LOCK_TIMEOUT;
  await session.all(`set local lock_timeout to '${timeout}'`);
  return rows.map(({ number }) => number);
}

/** @throws if the record violates a constraint, e.g. because its email was taken since */
async function createOne<Fields, Stored, Row>(
  session: Session,
  { fields, key, author }: PendingCreate<Fields>,
  time: Date,
  lockTimeout: string | null,
  { table, findRejected, newRecord, toRecord, insertOne }: CitusCreateParts<Fields, Stored, Row>,
): Promise<Outcome<Row>> {
  const createdAt = time.toISOString();
  // Checked first, because an insert consumes an id even if it fails. A request with a key may be a repeated one.
  if (key === null && (await findRejected(session, [fields]))[0]) return { kind: "rejected" };
  const numbers = await assignNumbers(session, table, 1, lockTimeout);
  const stored = newRecord(itemAt(numbers, 0), fields, createdAt);
  const record = toRecord(stored);
  if (key !== null) {
    const newKey = { ...key, record: record.json };
    const outcome = await claimKey(session, newKey, createdAt, expiryTime(time));
    if (outcome !== null) return outcome;
  }
  await insertOne(session, { record: stored, author }, time);
  return { kind: "created", record };
}

/** Creates all of these records. @returns them, in order */
async function insertAll<Fields, Stored, Row>(
  session: Session,
  creates: readonly PendingCreate<Fields>[],
  numbers: readonly number[],
  time: Date,
  { newRecord, toRecord, insertMany }: CitusCreateParts<Fields, Stored, Row>,
): Promise<readonly RecordText<Row>[]> {
  const createdAt = time.toISOString();
  const created = creates.map(({ fields, author }, at) => ({
    record: newRecord(itemAt(numbers, at), fields, createdAt),
    author,
  }));
  const records = created.map(({ record }) => toRecord(record));
  const newKeys = creates.flatMap(({ key }, at) =>
    key === null ? [] : { ...key, record: itemAt(records, at).json },
  );
  await insertKeys(session, newKeys, createdAt);
  await insertMany(session, created, time);
  return records;
}

/** @returns a function that creates records of one table */
export function prepareCitusCreate<Fields extends object, Stored, Row>(
  context: StoreContext,
  parts: CitusCreateParts<Fields, Stored, Row>,
): Create<Fields, Row> {
  const { db, now } = context;
  /** Errors of batches that failed while they wrote. Nothing of them is stored. */
  const rolledBack = new WeakSet<object>();

  async function runOne(
    create: PendingCreate<Fields>,
    lockTimeout: string | null,
  ): Promise<Outcome<Row>> {
    const work = (session: Session) => createOne(session, create, now(), lockTimeout, parts);
    try {
      return await db.runAdmitted("write", work, { transaction: true });
    } catch (error) {
      if (isConstraintViolation(error)) return parts.explainViolation(error, create.fields);
      throw error;
    }
  }

  async function runMany(
    creates: readonly PendingCreate<Fields>[],
    lockTimeout: string | null,
  ): Promise<readonly Outcome<Row>[]> {
    let isWriting = false;
    const work = async (session: Session) => {
      isWriting = false;
      const time = now();
      // `users` is a reference table, of which every node has a copy. Citus rejects a change of it after keys were written
      // over several connections per server.
      if (parts.table === "users" && creates.some(({ key }) => key !== null)) {
        await session.all(sequentialMode);
      }
      const allFields = creates.map(({ fields }) => fields);
      const rejected = await parts.findRejected(session, allFields);
      const outcomes = creates.map(({ key }, at): Outcome<Row> | null => {
        if (rejected[at] !== true) return null;
        // With a key it may be a repeated request, for which one that is alone looks.
        return { kind: key === null ? "rejected" : "undecided" };
      });
      const accepted = creates.filter((_create, at) => outcomes[at] === null);
      if (accepted.length === 0) return outcomes as readonly Outcome<Row>[];
      await session.all(lockBatches, tableNumbers[parts.table]);
      const numbers = await assignNumbers(session, parts.table, accepted.length, lockTimeout);
      // From here, no other batch and no import runs.
      isWriting = true;
      const records = await insertAll(session, accepted, numbers, time, parts);
      // An error of the commit does not tell whether it succeeded.
      isWriting = false;
      let next = 0;
      return outcomes.map((outcome): Outcome<Row> => {
        if (outcome !== null) return outcome;
        next += 1;
        return { kind: "created", record: itemAt(records, next - 1) };
      });
    };
    try {
      return await db.runAdmitted("write", work, {
        transaction: true,
        requests: creates.length,
      });
    } catch (error) {
      if (isWriting && sqlState(error) !== "") rolledBack.add(error as object);
      throw error;
    }
  }

  return createCreateQueue(context, {
    ...parts,
    async run(creates, lockTimeout) {
      const [create, ...others] = creates;
      if (create === undefined || others.length > 0) return runMany(creates, lockTimeout);
      return [await runOne(create, lockTimeout)];
    },
    mayBeCausedByOneItem: (error) => rolledBack.has(error as object),
    nextBatchMs: NEXT_BATCH_MS,
  });
}
