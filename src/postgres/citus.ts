/**
 * Access to records on Citus: one statement per look-up and page, and one transaction per create. Citus cannot run
 * the statements of a batch, which combine rows of several shards.
 */

import { fail } from "../error.ts";
import type { CreateResult, IdempotencyKey } from "../idempotency.ts";
import type { LargePages } from "../large-page.ts";
import { joinSmall, nextAfter } from "../page.ts";
import type { Connection, Database, Session, Value } from "./connection.ts";
import { isForeignKeyViolation } from "./errors.ts";
import { expiryTime } from "./idempotency.ts";
import { countQuery, type List, type ListReader, prepareSlices, startOf } from "./lists.ts";
import type { LookupParts, Reader } from "./reader.ts";
import type { Create, CreateParts, Writer } from "./writer.ts";

interface KeyRow {
  readonly fingerprint: string;
  readonly record: string;
}

/** Waits for a concurrent transaction that claims the same key. An expired key is claimed again. */
const claim = `
  insert into idempotency_keys (owner, key, fingerprint, record, created_at)
  values ($1, $2, $3, '{}', $4)
  on conflict (owner, key) do update
  set fingerprint = excluded.fingerprint, record = excluded.record, created_at = excluded.created_at
  where idempotency_keys.created_at <= $5
  returning owner
`;
const store_record = `
  update idempotency_keys
  set record = $3
  where owner = $1 and key = $2
`;
const find_key = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1 and key = $2
`;

function createCitusReader(db: Database): Reader {
  return {
    prepare<Key extends string | number, Row extends object, Result>(
      { table, key, columns }: LookupParts,
      fromRow: (row: Row) => Result,
    ) {
      const statement = `
        select ${columns}
        from ${table}
        where ${key} = $1
      `;
      return async (value: Key) => {
        const row = await db.read((session) => session.first<Row>(statement, value));
        return row && fromRow(row);
      };
    },
  };
}

function createCitusWriter(db: Database, now: () => Date): Writer {
  /** Runs `create` once per key, in the transaction that stores the key. */
  async function once<Row>(
    session: Session,
    { owner, key, fingerprint }: IdempotencyKey,
    create: (session: Session) => Promise<Row>,
  ): Promise<CreateResult<Row>> {
    for (;;) {
      const time = now();
      const claimed = await session.first(
        claim,
        owner,
        key,
        fingerprint,
        time.toISOString(),
        expiryTime(time),
      );
      if (claimed !== null) {
        const record = await create(session);
        await session.first(store_record, owner, key, JSON.stringify(record));
        return { record, replayed: false };
      }
      const existing = await session.first<KeyRow>(find_key, owner, key);
      // The key has expired and was deleted since the claim, so it can be claimed again.
      if (existing === null) continue;
      if (existing.fingerprint !== fingerprint) {
        fail("key_reused", "the idempotency key was used for another request");
      }
      return { record: JSON.parse(existing.record), replayed: true };
    }
  }

  return {
    prepare<Fields, Row>(parts: CreateParts<Fields, Row>): Create<Fields, Row> {
      const { table, toInput, refuse, toRecord } = parts;
      const names = Object.keys(parts.columns);
      const columns = names.join(", ");
      const values = names.map((_, at) => `$${at + 2}`).join(", ");
      const insert = `
        insert into ${table} (${columns}, version, created_at, updated_at)
        values (${values}, 1, $1, $1)
        on conflict do nothing
        returning id::float8 as id
      `;

      async function create(session: Session, fields: Fields): Promise<Row> {
        const time = now().toISOString();
        const input = toInput(fields);
        const cells = names.map((name) => {
          const value = input[name];
          return typeof value === "object" && value !== null ? JSON.stringify(value) : value;
        });
        try {
          const row = await session.first<{ id: number }>(insert, time, ...(cells as Value[]));
          return row === null ? refuse() : toRecord(row.id, fields, time);
        } catch (error) {
          if (isForeignKeyViolation(error)) refuse();
          throw error;
        }
      }

      return async (fields, key) => {
        if (key === null) {
          return { record: await db.write((session) => create(session, fields)), replayed: false };
        }
        return db.transact((session) => once(session, key, (tx) => create(tx, fields)));
      };
    },
  };
}

/** Citus has no triggers on distributed tables, so the records are counted for each page. */
function createCitusListReader(db: Database, large_pages: LargePages): ListReader {
  return {
    prepare<Row extends { readonly id: number }>(list: List<Row>) {
      const { readFirst, readAll } = prepareSlices(db, large_pages, list, countQuery(list));
      return async (query, values) => {
        const slice = await db.read((session) => readFirst(session, startOf(query), values));
        const joined = slice.is_complete ? joinSmall(slice.rows, query.limit, list.toJson) : null;
        if (joined === null) return readAll(query, values);
        return { total: slice.total, records: joined.records, next_after: nextAfter(joined) };
      };
    },
  };
}

export function createCitusAccess(
  db: Database,
  large_pages: LargePages,
  now: () => Date,
): Pick<Connection, "reader" | "writer" | "lists"> {
  return {
    reader: createCitusReader(db),
    writer: createCitusWriter(db, now),
    lists: createCitusListReader(db, large_pages),
  };
}
