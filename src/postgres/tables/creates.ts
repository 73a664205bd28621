/** Creates of users and orders, each once per idempotency key. Those of a batch share one statement. */
import type { Schema } from "../../base/schema.ts";
import { type ChangeType, changeCodeOf } from "../../domain/change.ts";
import { type IdempotencyKey, replay } from "../../domain/idempotency.ts";
import type { Author, RecordTable, RecordText } from "../../domain/record.ts";
import { itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import { createWriteQueue } from "../engine/write-queue.ts";
import { sequenceOf } from "../server/placement.ts";
import { runAgain } from "../server/retry.ts";
import type { RowValues } from "./columns.ts";
import { columnDefinitions, inputRows, prepareMembers, recordJson } from "./columns.ts";
import { claimKeys, namesOf, ofKey } from "./idempotency.ts";
import { statusCodeOf } from "./outbox.ts";
import { type Rejection, rejectionOf } from "./rejections.ts";

const MAX_CREATES = 256;

interface CreateParts<Fields> {
  readonly table: RecordTable;
  readonly columns: Readonly<Record<string, string>>;
  readonly rejections: readonly Rejection[];
  readonly created: ChangeType;
  readonly schema: Schema;
  /** The order of the inserts, which is the order of their locks. */
  readonly order: string;
  /** Values that must be unique, apart from the key: creates with a common one do not run at the same time. */
  readonly conflictKeysOf: (fields: Fields) => readonly string[];
  readonly lockOf: (fields: Fields) => string;
}

function insertStatement({ table, columns, order }: CreateParts<never>, from: string): string {
  const names = Object.keys(columns).join(", ");
  return `
        insert into ${table} (id, ${names}, version, created_at, updated_at)
        select id, ${names}, 1, $2::text, $2::text
        from ${from}
        order by ${order}
  `;
}

/**
 * Parameters: the creates as a JSON array, their time, and the same in milliseconds.
 * The statement waits for locks only in this order: keys, unique columns and foreign keys. The rows are in the order of their
 * emails or users, so batches of two replicas can have the same references in opposite orders: then they wait for each other
 * until the lock timeout, and each of their creates runs alone. No others can deadlock.
 * Each `materialized` copies all rows, so there are no more than needed. `offset 0` has subqueries evaluated once.
 */
function createStatement(parts: CreateParts<never>, ids: string, insert: string, hasKeys: boolean) {
  const { table, columns, rejections, created, schema } = parts;
  const keyColumns = { owner: "text", key: "text", fingerprint: "text" };
  const input = { ...columns, author: "text", ...(hasKeys && keyColumns) };
  const inputNames = Object.keys(input).join(", ");
  const result = `(
    select
      owner, key, fingerprint, ${recordJson(schema)} as record,
      ${table === "users" ? "id" : "null::bigint"} as user_id
    from (select *, 1 as version, created_at as updated_at from planned) as record
    where key is not null and id is not null
  ) as result`;
  const claimed = `claimed as (${claimKeys(result, "$2::text")}),`;
  const isClaimed = "(key is null or (owner, key) in (select owner, key from claimed))";
  const status = "status" in columns ? statusCodeOf("status") : "null";
  return `
    with
      planned as materialized (
        select
          found.*, $2::text as created_at,
          case when stored is null and rejection is null then pg_catalog.nextval('${ids}') end as id
        from (
          select
            input.*, ${rejectionOf(rejections, "is not null")} as rejection,
            ${hasKeys ? `(select array[fingerprint, record] ${ofKey})` : "null::text[]"} as stored
          from rows from (pg_catalog.json_to_recordset($1::text::json) as (${columnDefinitions(input)}))
            with ordinality as input (${inputNames}, position)
          offset 0
        ) as found
      ),
      ${hasKeys ? claimed : ""}
      decided as ${hasKeys ? "" : "not"} materialized (
        select planned.*, id is not null ${hasKeys ? `and ${isClaimed}` : ""} as is_created
        from planned
      ),
      inserted as (${insert}),
      noted as (
        insert into change_outbox (type, record_id, version, status, token, created_at)
        select ${changeCodeOf(created)}, id, 1, ${status}::smallint, author, $3::bigint
        from decided
        where is_created
      )
    select is_created, rejection, stored, id
    from decided
    order by position
  `;
}

interface CreatedRow {
  readonly id: number;
  readonly is_created: boolean;
  readonly rejection: number | null;
  /** Fingerprint and record stored with the key; `null` if the key is new. */
  readonly stored: readonly [string, string] | null;
}

/** Once per key. @throws {AppError} by its result: idempotency_key_reused if the key belongs to another request */
export function prepareCreate<Fields extends RowValues, Row>(
  context: StoreContext,
  parts: CreateParts<Fields>,
) {
  const { table, columns, rejections, conflictKeysOf, lockOf } = parts;
  const { placement } = context;
  const insertIndex = table === "orders" ? placement.insertIndex : null;
  const insert = insertIndex ?? insertStatement(parts, "decided where is_created");
  const ids = sequenceOf(table, placement);
  const withKeys = createStatement(parts, ids, insert, true);
  // It takes a tenth less time.
  const withoutKeys = createStatement(parts, ids, insert, false);
  const rowsOfInput = inputRows({ id: "bigint", ...columns });
  const insertApart = insertIndex && insertStatement(parts, rowsOfInput);

  const renderMembers = prepareMembers(parts.schema);

  function resultOf(
    { is_created, rejection, stored, id }: CreatedRow,
    key: IdempotencyKey | null,
    members: string,
  ): RecordText<Row> {
    if (stored !== null) {
      const [fingerprint, record] = stored;
      return replay({ fingerprint, record }, key);
    }
    if (rejection !== null) rejections[rejection]?.fail();
    // Another transaction has claimed the key since.
    if (!is_created) throw runAgain;
    return { id, version: 1, json: `{"id":${id}${members}` };
  }

  type Item = { fields: Fields; key: IdempotencyKey | null; author: Author };
  return createWriteQueue<Item, RecordText<Row>>(context, {
    maxItems: MAX_CREATES,
    async run(session, items) {
      const time = context.now();
      const createdAt = time.toISOString();
      const common = { version: 1, created_at: createdAt, updated_at: createdAt };
      const input = items.map(({ fields, key, author }) => ({ ...fields, author, ...key }));
      const values = [JSON.stringify(input), createdAt, time.getTime()];
      const create = items.some(({ key }) => key !== null) ? withKeys : withoutKeys;
      const rows = await session.all<CreatedRow>(create, ...values);
      const created = rows.flatMap(({ id, is_created }, at) =>
        is_created ? { id, ...items[at]?.fields } : [],
      );
      if (insertApart !== null && created.length > 0)
        await session.all(insertApart, JSON.stringify(created), createdAt);
      const outcomeOf =
        ({ fields, key }: Item, at: number) =>
        () =>
          resultOf(itemAt(rows, at), key, renderMembers({ ...fields, ...common }));
      return items.map(outcomeOf);
    },
    conflictKeysOf: ({ fields, key }) => [...conflictKeysOf(fields), ...namesOf(key)],
    lockOf: ({ fields }) => lockOf(fields),
  });
}
