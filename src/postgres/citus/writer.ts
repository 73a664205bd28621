/**
 * Batched creates. Records that are created in one turn of the event loop, or while others are being created, share
 * one transaction: on several servers, its statements and its commit cost many times as much as a row. A create that
 * is alone has fewer and simpler statements.
 */
import type { Connection, Session } from "../connection.ts";
import {
  type Create,
  type CreateQueueOptions,
  createCreateQueues,
  type Outcome,
  type PendingCreate,
} from "../create-queue.ts";
import { isConstraintViolation, isRolledBack, originalState } from "../errors.ts";
import { expiryTime } from "../idempotency.ts";
import { nextNumbers, type TableWithIds, table_numbers } from "./id-lock.ts";
import { claimKey, findKeys, insertKeys, type NewKey, nameOf } from "./idempotency.ts";

/**
 * Small batches cost almost as much as large ones, so the next batch waits for the one before, which takes 15 to 30 ms,
 * unless that one waits for a lock.
 */
const NEXT_BATCH_MS = 100;
/** Half of the connections that the default pool leaves to writes. */
const MAX_BATCHES = 6;

/** First number of the advisory locks on batches; the second is that of the table. */
const BATCH_LOCK = 0x75616261;
/**
 * Batches of one table run one after the other on the whole cluster. Two that wait for each other's rows on different
 * workers would be a deadlock, which Citus detects after 2 s. From here on, `set local` applies to workers, too.
 */
const lock_batches = `
  select pg_advisory_xact_lock(${BATCH_LOCK}, $1),
    set_config('citus.propagate_set_commands', 'local', true)
`;

/** How records of one table are created. */
export interface CitusCreateParts<Fields, Row>
  extends Pick<CreateQueueOptions<Fields, Row>, "conflictKeysOf" | "lockOf" | "throwRejected"> {
  readonly table: TableWithIds;
  /** @returns whether each record cannot be created */
  readonly findRejected: (
    session: Session,
    all_fields: readonly Fields[],
  ) => Promise<readonly boolean[]>;
  readonly toRecord: (number: number, fields: Fields, time: string) => Row;
  readonly insertOne: (session: Session, record: Row) => Promise<void>;
  readonly insertMany: (session: Session, records: readonly Row[]) => Promise<void>;
  /** Called if the record violates a constraint. @returns or throws the reason */
  readonly explainViolation: (fields: Fields) => Promise<Outcome<Row>>;
}

export interface CitusWriter {
  prepare<Fields, Row>(parts: CitusCreateParts<Fields, Row>): Create<Fields, Row>;
}

async function assignNumbers(
  session: Session,
  table: TableWithIds,
  count: number,
): Promise<readonly number[]> {
  const rows = await session.all<{ number: number }>(nextNumbers(table), count);
  return rows.map(({ number }) => number);
}

/** Creates a record. A stored key or a violated constraint tells that it cannot be created. */
async function createOne<Fields, Row>(
  session: Session,
  { fields, key }: PendingCreate<Fields>,
  time: Date,
  { table, findRejected, toRecord, insertOne }: CitusCreateParts<Fields, Row>,
): Promise<Outcome<Row>> {
  const created_at = time.toISOString();
  // Checked first, because an insert consumes an id even if it fails. A request with a key may be a repeated one.
  if (key === null && (await findRejected(session, [fields]))[0]) return { kind: "rejected" };
  const [number] = await assignNumbers(session, table, 1);
  const record = toRecord(Number(number), fields, created_at);
  if (key !== null) {
    const new_key = { ...key, record: JSON.stringify(record) };
    const outcome = await claimKey(session, new_key, created_at, expiryTime(time));
    if (outcome !== null) return outcome;
  }
  await insertOne(session, record);
  return { kind: "created", record };
}

interface BatchOptions {
  readonly time: Date;
  readonly lock_timeout: string;
  /** Whether keys are not looked up. If one is stored, a constraint is then violated. */
  readonly are_keys_new: boolean;
}

/** Creates all records that can be created. */
async function createMany<Fields, Row>(
  session: Session,
  creates: readonly PendingCreate<Fields>[],
  { time, lock_timeout, are_keys_new }: BatchOptions,
  { table, findRejected, toRecord, insertMany }: CitusCreateParts<Fields, Row>,
): Promise<readonly Outcome<Row>[]> {
  const created_at = time.toISOString();
  const rejected = await findRejected(
    session,
    creates.map(({ fields }) => fields),
  );
  // A request that is rejected may be a repeated one.
  const looked_up = creates.filter((_create, at) => !are_keys_new || rejected[at] === true);
  const keys = looked_up.flatMap(({ key }) => key ?? []);
  const stored = await findKeys(session, keys, expiryTime(time));
  const outcomes = creates.map(({ key }, at): Outcome<Row> | null => {
    const found = key === null ? undefined : stored.get(nameOf(key));
    if (found !== undefined) return found;
    return rejected[at] === true ? { kind: "rejected" } : null;
  });

  const accepted = creates.filter((_create, at) => outcomes[at] === null);
  await session.all(lock_batches, table_numbers[table]);
  const numbers = await assignNumbers(session, table, accepted.length);
  const records: Row[] = [];
  const new_keys: NewKey[] = [];
  for (const [at, { fields, key }] of accepted.entries()) {
    const record = toRecord(Number(numbers[at]), fields, created_at);
    records.push(record);
    if (key !== null) new_keys.push({ ...key, record: JSON.stringify(record) });
  }
  await session.all(`set local lock_timeout to '${lock_timeout}'`);
  if (new_keys.length > 0) await insertKeys(session, new_keys, created_at);
  if (records.length > 0) await insertMany(session, records);
  const created = records.values();
  return outcomes.map(
    (outcome) => outcome ?? { kind: "created", record: created.next().value as Row },
  );
}

export function createCitusWriter({ db, now }: Connection): CitusWriter {
  const prepareCreate = createCreateQueues(db);

  function prepare<Fields, Row>(parts: CitusCreateParts<Fields, Row>): Create<Fields, Row> {
    const { explainViolation } = parts;
    /** Errors of batches that failed before their commit. */
    const rolled_back = new WeakSet<object>();

    async function runOne(create: PendingCreate<Fields>): Promise<Outcome<Row>> {
      try {
        return await db.transactMany(1, (session) => createOne(session, create, now(), parts));
      } catch (error) {
        if (isConstraintViolation(error)) return explainViolation(create.fields);
        throw error;
      }
    }

    async function runMany(creates: readonly PendingCreate<Fields>[], lock_timeout: string) {
      let attempts = 0;
      let is_committing = false;
      const work = async (session: Session) => {
        attempts += 1;
        is_committing = false;
        const options = { time: now(), lock_timeout, are_keys_new: attempts === 1 };
        const outcomes = await createMany(session, creates, options, parts);
        is_committing = true;
        return outcomes;
      };
      const mayRetry = (error: unknown) =>
        isRolledBack(error) || (attempts === 1 && isConstraintViolation(error));
      try {
        return await db.transactMany(creates.length, work, mayRetry);
      } catch (error) {
        if (!is_committing && originalState(error) !== "") rolled_back.add(error as object);
        throw error;
      }
    }

    return prepareCreate({
      ...parts,
      toJson: (fields, key) => JSON.stringify({ ...fields, ...key }),
      async run(creates, lock_timeout) {
        const [create] = creates;
        if (create === undefined) return [];
        // A create that is alone waits for a locked row as long as the connection permits.
        if (creates.length === 1 || lock_timeout === null) return [await runOne(create)];
        return runMany(creates, lock_timeout);
      },
      isOfOne: (error) => rolled_back.has(error as object),
      max_batches: MAX_BATCHES,
      next_batch_ms: NEXT_BATCH_MS,
    });
  }
  return { prepare };
}
