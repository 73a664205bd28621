import { yieldToEventLoop } from "../base/event-loop.ts";
import type { MaybePromise } from "../base/maybe-promise.ts";
import type { IdempotencyKey } from "./idempotency.ts";
import type { Page, PageMemory, PageQuery } from "./page.ts";
import type { Preconditions } from "./precondition.ts";
import type { Author, RecordText } from "./record.ts";
import type { ClientId } from "./token.ts";

/**
 * What the stores of users and orders share. Every method is one transaction. A write is on disk when its promise
 * resolves. A write with a key is made once, and otherwise returns the record of the first one, before anything is
 * checked. A write with preconditions checks them against the stored record. Each write that changes a record adds one
 * change to the feed (`src/domain/change.ts`) in its transaction; `author` is `null` by default.
 */
export interface RecordStore<Row, Query, Edit, Fields> {
  /**
   * Returns a page of records by `id`, which ascends unless the query says otherwise.
   * @param client who reads it: none takes more than its share of connections while others wait. Default: the process itself
   * @param memory bounds the page, unless it is small
   * @throws {AppError} validation_failed, with the limit allowed, if the page exceeds 4 MiB; unavailable if `memory` is full
   */
  list(query: Query, client?: ClientId, memory?: PageMemory): MaybePromise<Page>;
  /** `client` as in `list`. */
  get(id: number, client?: ClientId): MaybePromise<RecordText<Row> | null>;
  /** @throws {AppError} idempotency_key_reused, email_taken, reference_taken; validation_failed if the user does not exist */
  create(fields: Fields, key: IdempotencyKey | null, author?: Author): Promise<RecordText<Row>>;
  /**
   * Reads the record, applies `edit`, and stores the result. An edit that leaves every field as it is writes nothing: the
   * version, the times and the feed stay as they are.
   * @returns the record after the edit; `null` if it does not exist
   * @throws {AppError} as `create`; version_mismatch if a precondition does not hold; what `edit` throws, before any write
   */
  update(
    id: number,
    edit: (record: Row) => Edit,
    preconditions: Preconditions | null,
    key?: IdempotencyKey | null,
    author?: Author,
  ): Promise<RecordText<Row> | null>;
}

/** @returns the records that have the references of these, by reference */
export async function findAll<Row extends { readonly reference: string | null }>(
  list: (query: PageQuery & { reference: string }) => MaybePromise<Page>,
  named: readonly { readonly reference: string | null }[],
): Promise<Map<string, Row>> {
  const found = new Map<string, Row>();
  const references = named.flatMap(({ reference }) => reference ?? []);
  for (let start = 0; start < references.length; start += 100) {
    const some = references.slice(start, start + 100);
    const pages = some.map((reference) => list({ limit: 1, offset: 0, reference }));
    for (const { records } of await Promise.all(pages)) {
      const row: Row | null = JSON.parse(records || "null");
      if (row !== null) found.set(`${row.reference}`, row);
    }
    // SQLite keeps a snapshot until the end of the turn.
    await yieldToEventLoop();
  }
  return found;
}
