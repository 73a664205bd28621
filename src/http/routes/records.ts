/** What the routes of users and orders share. */
import { type ErrorCode, fail } from "../../base/error.ts";
import { andThen } from "../../base/maybe-promise.ts";
import type { CreateResult, IdempotencyKey } from "../../domain/idempotency.ts";
import type { Author, RecordStore, RecordText } from "../../domain/record.ts";
import type { Call } from "../input/call.ts";
import { preconditionsOf } from "../input/entity-tags.ts";
import { idempotencyKeyOf } from "../input/idempotency-key.ts";
import {
  conditionalRecordBody,
  createdBody,
  type ListQuery,
  pageBody,
  recordBody,
} from "../output/bodies.ts";

type CallWithId = Call<unknown, { readonly id: number }>;

/**
 * @param path of the list
 * @param missing the error if there is no record with an id
 * @returns handlers, each with the body of its response
 */
export function createRecordHandlers<Row>(
  path: string,
  missing: { readonly code: ErrorCode; readonly message: string },
) {
  function requireRecord(record: RecordText<Row> | null): RecordText<Row> {
    return record ?? fail(missing.code, missing.message);
  }

  return {
    requireRecord,
    list<Query extends ListQuery>(
      call: Call<Query>,
      records: Pick<RecordStore<Row, Query, never>, "list">,
    ) {
      return andThen(records.list(call.query, call.token.hash), (page) =>
        pageBody<Row>(call, path, page),
      );
    },
    get(call: CallWithId, records: Pick<RecordStore<Row, never, never>, "get">) {
      const preconditions = preconditionsOf(call.request);
      return andThen(records.get(call.params.id, call.token.hash), (record) =>
        conditionalRecordBody(call, requireRecord(record), preconditions),
      );
    },
    async create(
      call: Call,
      create: (key: IdempotencyKey | null, author: Author) => Promise<CreateResult<Row>>,
    ) {
      return createdBody(call, path, await create(idempotencyKeyOf(call, path), call.token.name));
    },
    /** Of PATCH and PUT. @param edit returns what the record changes to */
    async update<Edit>(
      call: CallWithId,
      records: Pick<RecordStore<Row, never, Edit>, "update">,
      edit: (record: Row) => Edit,
    ) {
      const preconditions = preconditionsOf(call.request);
      const record = await records.update(call.params.id, edit, preconditions, call.token.name);
      return recordBody(call, requireRecord(record));
    },
  };
}
