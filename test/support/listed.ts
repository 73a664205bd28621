import type { MaybePromise } from "../../src/base/maybe-promise.ts";
import type { Page } from "../../src/domain/page.ts";

/** Parses the records of a page, which a store returns as JSON. Omits `nextAfter` if it is `null`. */
export async function listed<Row extends { id: number } = any>(page: MaybePromise<Page>) {
  const { records, total, nextAfter } = await page;
  const rows: Row[] = JSON.parse(`[${records}]`);
  return { rows, total, ...(nextAfter !== null && { nextAfter }) };
}
