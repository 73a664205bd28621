import { requirePreconditions } from "../precondition.ts";
import { type RecordStore, type RecordText, reserveRecord } from "../record.ts";
import { recordBody } from "./bodies.ts";
import { preconditionsOf } from "./entity-tags.ts";
import type { Call } from "./route.ts";

type PatchCall<Patch> = Pick<Call, "request" | "head" | "reserve" | "token"> & {
  readonly params: { readonly id: number };
  readonly body: Patch;
};

/**
 * Handles a JSON Merge Patch. An empty one changes nothing, so nothing is written: the record is read like for a GET.
 * @param patched returns what the record changes to
 * @param requireRecord throws if there is no record
 * @returns the body of the response
 */
export async function patchRecord<Row, Patch extends object, Change>(
  { request, head, reserve, params, body, token }: PatchCall<Patch>,
  records: Pick<RecordStore<Row, never, Change>, "get" | "update">,
  patched: (record: Row, patch: Patch) => Change,
  requireRecord: (record: RecordText<Row> | null) => RecordText<Row>,
) {
  const preconditions = preconditionsOf(request);
  if (Object.keys(body).length > 0) {
    const edit = (record: Row) => patched(record, body);
    const record = await records.update(params.id, edit, preconditions, token.name, reserve);
    return recordBody(head, requireRecord(record));
  }
  const record = requireRecord(await records.get(params.id, token.hash));
  requirePreconditions(record, preconditions);
  reserveRecord(record, reserve);
  return recordBody(head, record);
}
