/**
 * Batched creates. Records that are created in one turn of the event loop, or while others are being created, share
 * one transaction: on several servers, its statements and its commit cost many times as much as a row. A create that
 * is alone has fewer and simpler statements.
 */
import type { RecordText } from "../../record.ts";
import type { Session } from "../connection.ts";
import type { StoreContext } from "../context.ts";
import {
  type Create,
  type CreateRules,
  createCreateQueue,
  nameOf,
  type Outcome,
  type PendingCreate,
} from "../create-queue.ts";
import { isConstraintViolation, isRolledBack, sqlState } from "../errors.ts";
import { expiryTime } from "../idempotency.ts";
import { nextNumbers, type TableWithIds, table_numbers } from "./id-lock.ts";
import { claimKey, deleteKeys, findKeys, insertKeys } from "./idempotency.ts";
import { sequential_mode } from "./settings.ts";

/**
 * Small batches cost almost as much as large ones, so the next batch waits for the one before, which takes 15 to 30 ms,
 * unless that one waits for a lock.
 */
const NEXT_BATCH_MS = 100;

/** First number of the advisory locks on batches; the second is that of the table. */
const BATCH_LOCK = 0x75616261;
/**
 * Batches of one table run one after the other on the whole cluster. Two that wait for each other's rows on different
 * workers would be a deadlock, which Citus detects after 2 s.
 */
const lock_batches = `select pg_advisory_xact_lock(${BATCH_LOCK}, $1)`;

/** How records of one table are created. `Stored` is a record with JSON columns as text. */
export interface CitusCreateParts<Fields, Stored, Row> extends CreateRules<Fields> {
  readonly table: TableWithIds;
  /** @returns whether each record cannot be created */
  readonly findRejected: (
    session: Session,
    all_fields: readonly Fields[],
  ) => Promise<readonly boolean[]>;
  readonly newRecord: (number: number, fields: Fields, time: string) => Stored;
  readonly toRecord: (stored: Stored) => RecordText<Row>;
  readonly insertOne: (session: Session, record: Stored) => Promise<void>;
  readonly insertMany: (session: Session, records: readonly Stored[]) => Promise<void>;
  /**
   * Called if a record violates a constraint.
   * @throws {AppError} unavailable, or the same error if it does not concern the fields
   */
  readonly explainViolation: (error: unknown, fields: Fields) => Promise<Outcome<Row>>;
}

/** Assigns numbers, after the locks that a transaction waits for as long as the connection permits. */
async function assignNumbers(
  session: Session,
  table: TableWithIds,
  count: number,
  lock_timeout: string | null,
): Promise<readonly number[]> {
  const rows = await session.all<{ number: number }>(nextNumbers(table), count);
  if (lock_timeout !== null) await session.all(`set local lock_timeout to '${lock_timeout}'`);
  return rows.map(({ number }) => number);
}

interface Attempt {
  readonly time: Date;
  readonly lock_timeout: string | null;
}

/** @throws if the record violates a constraint, e.g. because its email was taken since */
async function createOne<Fields, Stored, Row>(
  session: Session,
  { fields, key }: PendingCreate<Fields>,
  { time, lock_timeout }: Attempt,
  { table, findRejected, newRecord, toRecord, insertOne }: CitusCreateParts<Fields, Stored, Row>,
): Promise<Outcome<Row>> {
  const created_at = time.toISOString();
  // Checked first, because an insert consumes an id even if it fails. A request with a key may be a repeated one.
  if (key === null && (await findRejected(session, [fields]))[0]) return { kind: "rejected" };
  const [number] = await assignNumbers(session, table, 1, lock_timeout);
  const stored = newRecord(Number(number), fields, created_at);
  const record = toRecord(stored);
  if (key !== null) {
    const new_key = { ...key, record: record.json };
    const outcome = await claimKey(session, new_key, created_at, expiryTime(time));
    if (outcome !== null) return outcome;
  }
  await insertOne(session, stored);
  return { kind: "created", record };
}

interface BatchAttempt extends Attempt {
  /** Whether all keys are looked up. Otherwise one that is stored violates a constraint. */
  readonly looks_up_keys: boolean;
  /** Called after the locks that exclude other batches and imports. */
  readonly onLocked: () => void;
}

/** Creates all records that can be created. */
async function createMany<Fields, Stored, Row>(
  session: Session,
  creates: readonly PendingCreate<Fields>[],
  { time, lock_timeout, looks_up_keys, onLocked }: BatchAttempt,
  parts: CitusCreateParts<Fields, Stored, Row>,
): Promise<readonly Outcome<Row>[]> {
  const { table, findRejected, newRecord, toRecord, insertMany } = parts;
  const created_at = time.toISOString();
  const expiry = expiryTime(time);
  // `users` is a reference table, of which every node has a copy. Citus rejects a change of it after keys were written
  // over several connections per server.
  if (table === "users" && creates.some(({ key }) => key !== null)) {
    await session.all(sequential_mode);
  }
  const all_fields = creates.map(({ fields }) => fields);
  const rejected = await findRejected(session, all_fields);
  // A request that is rejected may be a repeated one.
  const looked_up = creates.filter((_create, at) => looks_up_keys || rejected[at] === true);
  const keys = looked_up.flatMap(({ key }) => key ?? []);
  const { stored, expired } = await findKeys(session, keys, expiry);
  const outcomes = creates.map(({ key }, at): Outcome<Row> | null => {
    const found = key === null ? undefined : stored.get(nameOf(key));
    if (found !== undefined) return found;
    if (rejected[at] !== true) return null;
    // The first request with the key may be visible on the coordinator, but not yet on the worker that has the key.
    // To claim the key waits for it.
    return key === null ? { kind: "rejected" } : { kind: "locked" };
  });

  const accepted = creates.filter((_create, at) => outcomes[at] === null);
  if (accepted.length === 0) return outcomes as readonly Outcome<Row>[];
  await session.all(lock_batches, table_numbers[table]);
  const numbers = await assignNumbers(session, table, accepted.length, lock_timeout);
  onLocked();
  const new_records = accepted.map(({ fields }, at) =>
    newRecord(Number(numbers[at]), fields, created_at),
  );
  const records = new_records.map(toRecord);
  const new_keys = accepted.flatMap(({ key }, at) =>
    key === null ? [] : { ...key, record: (records[at] as RecordText<Row>).json },
  );
  await deleteKeys(session, expired, expiry);
  await insertKeys(session, new_keys, created_at);
  await insertMany(session, new_records);
  const created = records.values();
  return outcomes.map(
    (outcome) => outcome ?? { kind: "created", record: created.next().value as RecordText<Row> },
  );
}

/** @returns a function that creates records of one table */
export function prepareCitusCreate<Fields, Stored, Row>(
  context: StoreContext,
  parts: CitusCreateParts<Fields, Stored, Row>,
): Create<Fields, Row> {
  const { db, now } = context;
  /** Errors of batches that failed while they wrote. Nothing of them is stored. */
  const rolled_back = new WeakSet<object>();

  async function runOne(
    create: PendingCreate<Fields>,
    lock_timeout: string | null,
  ): Promise<Outcome<Row>> {
    const work = (session: Session) =>
      createOne(session, create, { time: now(), lock_timeout }, parts);
    try {
      return await db.run("write", work, { transaction: true, admitted: 1 });
    } catch (error) {
      if (isConstraintViolation(error)) return parts.explainViolation(error, create.fields);
      throw error;
    }
  }

  async function runMany(
    creates: readonly PendingCreate<Fields>[],
    lock_timeout: string | null,
  ): Promise<readonly Outcome<Row>[]> {
    let attempts = 0;
    let is_writing = false;
    const work = async (session: Session) => {
      attempts += 1;
      is_writing = false;
      const attempt = {
        time: now(),
        lock_timeout,
        looks_up_keys: attempts > 1,
        onLocked() {
          is_writing = true;
        },
      };
      const outcomes = await createMany(session, creates, attempt, parts);
      // An error of the commit does not tell whether it succeeded.
      is_writing = false;
      return outcomes;
    };
    const mayRetry = (error: unknown) =>
      isRolledBack(error) || (attempts === 1 && isConstraintViolation(error));
    try {
      return await db.run("write", work, {
        transaction: true,
        admitted: creates.length,
        mayRetry,
      });
    } catch (error) {
      if (is_writing && sqlState(error) !== "") rolled_back.add(error as object);
      throw error;
    }
  }

  return createCreateQueue(context, {
    ...parts,
    async run(creates, lock_timeout) {
      const [create, ...others] = creates;
      if (create === undefined || others.length > 0) return runMany(creates, lock_timeout);
      return [await runOne(create, lock_timeout)];
    },
    mayBeCausedByOneItem: (error) => rolled_back.has(error as object),
    next_batch_ms: NEXT_BATCH_MS,
  });
}
