import { type ErrorCode, fail } from "../../base/error.ts";
import { andThen } from "../../base/maybe-promise.ts";
import { matchesIfNoneMatch, requireMatch } from "../../domain/precondition.ts";
import type { RecordText } from "../../domain/record.ts";
import type { RecordStore } from "../../domain/record-store.ts";
import type { Store } from "../../domain/store.ts";
import type { UserStore } from "../../domain/user.ts";
import type { Call } from "../input/call.ts";
import { idempotencyKeyOf, preconditionsOf } from "../input/headers.ts";
import { envelopeBody, type ListQuery, pageBody, REVALIDATE } from "../output/bodies.ts";
import type { Services } from "./services.ts";

type CallWithId = Call<unknown, { readonly id: number }>;

function deletedBody<Row>(call: Call, { id, json, replayed }: RecordText<Row>) {
  call.recordId = id;
  if (replayed) call.head.headers["idempotent-replayed"] = "true";
  return envelopeBody<Row>(json);
}

function recordBody<Row>(call: Call, record: RecordText<Row>) {
  const { headers } = call.head;
  headers["etag"] = `"${record.version}"`;
  headers["cache-control"] = REVALIDATE;
  return deletedBody(call, record);
}

/** @param path of the list. @param missing the code of the error if there is no record with an id */
export function createRecordHandlers<Row, Query extends ListQuery, Edit, Fields, Body>(
  path: string,
  recordsOf: (store: Store) => RecordStore<Row, Query, Edit, Fields>,
  fieldsOf: (body: Body) => Fields,
  missing: ErrorCode,
) {
  function conditionsOf(call: CallWithId) {
    const key = idempotencyKeyOf(call, `${path}/${call.params.id}`);
    return [preconditionsOf(call.request), key, call.token.name] as const;
  }

  return {
    list(call: Call<Query>, { store, responseMemory }: Services) {
      const { head, query, token } = call;
      const found = recordsOf(store).list(query, token.hash, responseMemory);
      return andThen(found, (page) => pageBody<Row>(head, path, query, page));
    },
    /** The body is `null`, with status 304, if the client already has this version. */
    get(call: CallWithId, { store }: Services) {
      const preconditions = preconditionsOf(call.request);
      return andThen(recordsOf(store).get(call.params.id, call.token.hash), (found) => {
        const record = found ?? fail(missing);
        const body = recordBody(call, record);
        if (preconditions === null) return body;
        requireMatch(record, preconditions);
        if (!matchesIfNoneMatch(record, preconditions)) return body;
        call.head.status = 304;
        return null;
      });
    },
    async create(call: Call<unknown, unknown, Body>, { store }: Services) {
      const key = idempotencyKeyOf(call, path);
      const record = await recordsOf(store).create(fieldsOf(call.body), key, call.token.name);
      call.head.status = 201;
      call.head.headers["location"] = `${path}/${record.id}`;
      return recordBody(call, record);
    },
    async update(call: CallWithId, { store }: Services, edit: (record: Row) => Edit) {
      const record = await recordsOf(store).update(call.params.id, edit, ...conditionsOf(call));
      return recordBody(call, record ?? fail(missing));
    },
    async remove(call: CallWithId, records: Pick<UserStore, "remove">) {
      const record = await records.remove(call.params.id, ...conditionsOf(call));
      return deletedBody(call, record ?? fail(missing));
    },
  };
}
