import type { RecordStore, RecordText } from "../record.ts";
import { recordBody } from "./bodies.ts";
import { preconditionsOf } from "./entity-tags.ts";
import type { Call } from "./route.ts";

type PatchCall<Patch> = Pick<Call, "request" | "head" | "reserve" | "token"> & {
  readonly params: { readonly id: number };
  readonly body: Patch;
};

/**
 * Handles a JSON Merge Patch.
 * @param patched returns what the record changes to
 * @param requireRecord throws if there is no record
 * @returns the body of the response
 */
export async function patchRecord<Row, Patch extends object, Change>(
  { request, head, reserve, params, body, token }: PatchCall<Patch>,
  records: Pick<RecordStore<Row, never, Change>, "update">,
  patched: (record: Row, patch: Patch) => Change,
  requireRecord: (record: RecordText<Row> | null) => RecordText<Row>,
) {
  const edit = (record: Row) => patched(record, body);
  const preconditions = preconditionsOf(request);
  const record = await records.update(params.id, edit, preconditions, token.name, reserve);
  return recordBody(head, requireRecord(record));
}
