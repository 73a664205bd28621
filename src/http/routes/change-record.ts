import type { RecordStore, RecordText } from "../../domain/record.ts";
import { preconditionsOf } from "../input/entity-tags.ts";
import { recordBody } from "../output/bodies.ts";
import type { Call } from "./route.ts";

type ChangeCall = Pick<Call, "request" | "head" | "token"> & {
  readonly params: { readonly id: number };
};

/**
 * Handles a PATCH or PUT.
 * @param edit returns what the record changes to
 * @param requireRecord throws if there is no record
 * @returns the body of the response
 */
export async function changeRecord<Row, Edit>(
  { request, head, params, token }: ChangeCall,
  records: Pick<RecordStore<Row, never, Edit>, "update">,
  edit: (record: Row) => Edit,
  requireRecord: (record: RecordText<Row> | null) => RecordText<Row>,
) {
  const preconditions = preconditionsOf(request);
  const record = await records.update(params.id, edit, preconditions, token.name);
  return recordBody(head, requireRecord(record));
}
