/** Why a record cannot be stored, apart from its own fields: what other records have. */
import { type ErrorCode, fail } from "../../base/error.ts";

export interface Rejection {
  /** A condition on the row `input`, by a unique column only. @param isOther what holds for the id of another record */
  readonly when: (isOther: string) => string;
  readonly fail: () => never;
}

export function taken(table: string, column: string, code: ErrorCode): Rejection {
  const known = `(select known.id from ${table} as known where known.${column} = input.${column})`;
  return { when: (isOther) => `${known} ${isOther}`, fail: () => fail(code) };
}

/** @returns an expression for the place of the first rejection of the row `input`; null if there is none */
export function rejectionOf(rejections: readonly Rejection[], isOther: string): string {
  return `case ${rejections.map(({ when }, at) => `when ${when(isOther)} then ${at}`).join(" ")} end`;
}
