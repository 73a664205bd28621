import { type ErrorCode, fail } from "../../base/error.ts";
import { andThen } from "../../base/maybe-promise.ts";
import type { RecordText } from "../../domain/record.ts";
import type { RecordStore } from "../../domain/record-store.ts";
import type { Store } from "../../domain/store.ts";
import type { UserStore } from "../../domain/user.ts";
import type { Call } from "../input/call.ts";
import { preconditionsOf } from "../input/entity-tags.ts";
import { idempotencyKeyOf } from "../input/idempotency-key.ts";
import {
  conditionalRecordBody,
  createdBody,
  deletedBody,
  type ListQuery,
  pageBody,
  recordBody,
} from "../output/bodies.ts";
import type { Services } from "./route.ts";

type CallWithId = Call<unknown, { readonly id: number }>;

/** @param path of the list. @param missing the error if there is no record with an id */
export function createRecordHandlers<Row, Query extends ListQuery, Edit, Fields, Body>(
  path: string,
  recordsOf: (store: Store) => RecordStore<Row, Query, Edit, Fields>,
  fieldsOf: (body: Body) => Fields,
  missing: { readonly code: ErrorCode; readonly message: string },
) {
  function requireRecord<Found>(record: RecordText<Found> | null): RecordText<Found> {
    return record ?? fail(missing.code, missing.message);
  }

  return {
    list(call: Call<Query>, { store, responseMemory }: Services) {
      const { query, token } = call;
      return andThen(recordsOf(store).list(query, token.hash, responseMemory), (page) =>
        pageBody<Row>(call, path, page),
      );
    },
    get(call: CallWithId, { store }: Services) {
      const preconditions = preconditionsOf(call.request);
      return andThen(recordsOf(store).get(call.params.id, call.token.hash), (record) =>
        conditionalRecordBody(call, requireRecord(record), preconditions),
      );
    },
    async create(call: Call<unknown, unknown, Body>, { store }: Services) {
      const key = idempotencyKeyOf(call, path);
      const record = await recordsOf(store).create(fieldsOf(call.body), key, call.token.name);
      return createdBody(call, path, record);
    },
    /** Of PATCH and PUT. */
    async update(call: CallWithId, { store }: Services, edit: (record: Row) => Edit) {
      const { request, params, token } = call;
      const { id } = params;
      const key = idempotencyKeyOf(call, `${path}/${id}`);
      const preconditions = preconditionsOf(request);
      const record = await recordsOf(store).update(id, edit, preconditions, key, token.name);
      return recordBody(call, requireRecord(record));
    },
    async remove(call: CallWithId, records: Pick<UserStore, "remove">) {
      const { request, params, token } = call;
      const { id } = params;
      const key = idempotencyKeyOf(call, `${path}/${id}`);
      const record = await records.remove(id, preconditionsOf(request), key, token.name);
      return deletedBody(call, requireRecord(record));
    },
  };
}
