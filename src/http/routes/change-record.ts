import type { RecordStore, RecordText } from "../../domain/record.ts";
import type { Call } from "../input/call.ts";
import { preconditionsOf } from "../input/entity-tags.ts";
import { recordBody } from "../output/bodies.ts";

/**
 * Handles a PATCH or PUT.
 * @param edit returns what the record changes to
 * @param requireRecord throws if there is no record
 * @returns the body of the response
 */
export async function changeRecord<Row, Edit>(
  call: Call<unknown, { readonly id: number }>,
  records: Pick<RecordStore<Row, never, Edit>, "update">,
  edit: (record: Row) => Edit,
  requireRecord: (record: RecordText<Row> | null) => RecordText<Row>,
) {
  const preconditions = preconditionsOf(call.request);
  const record = await records.update(call.params.id, edit, preconditions, call.token.name);
  return recordBody(call, requireRecord(record));
}
