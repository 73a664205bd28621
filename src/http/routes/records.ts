/** What the routes of users and orders share. */
import { type ErrorCode, fail } from "../../base/error.ts";
import { andThen } from "../../base/maybe-promise.ts";
import type { CreateResult, IdempotencyKey } from "../../domain/idempotency.ts";
import type { Author, RecordStore, RecordText } from "../../domain/record.ts";
import type { Store } from "../../domain/store.ts";
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
import type { Services } from "./route.ts";

type CallWithId = Call<unknown, { readonly id: number }>;

/**
 * @param path of the list
 * @param missing the error if there is no record with an id
 * @returns handlers, each with the body of its response
 */
export function createRecordHandlers<Row, Query extends ListQuery, Edit>(
  path: string,
  recordsOf: (store: Store) => RecordStore<Row, Query, Edit>,
  missing: { readonly code: ErrorCode; readonly message: string },
) {
  function requireRecord(record: RecordText<Row> | null): RecordText<Row> {
    return record ?? fail(missing.code, missing.message);
  }

  return {
    requireRecord,
    list(call: Call<Query>, { store }: Services) {
      return andThen(recordsOf(store).list(call.query, call.token.hash), (page) =>
        pageBody<Row>(call, path, page),
      );
    },
    get(call: CallWithId, { store }: Services) {
      const preconditions = preconditionsOf(call.request);
      return andThen(recordsOf(store).get(call.params.id, call.token.hash), (record) =>
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
    async update(call: CallWithId, { store }: Services, edit: (record: Row) => Edit) {
      const { request, params, token } = call;
      const preconditions = preconditionsOf(request);
      const record = await recordsOf(store).update(params.id, edit, preconditions, token.name);
      return recordBody(call, requireRecord(record));
    },
  };
}
