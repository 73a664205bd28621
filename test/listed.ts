import type { Maybe } from "../src/maybe.ts";
import type { Page } from "../src/page.ts";

/** Reads all records of a page. A large page can be read once. */
export function textOf(records: Page["records"]): string {
  if (typeof records === "string") return records;
  const decoder = new TextDecoder();
  let text = "";
  for (let chunk = records.next(); chunk !== null; chunk = records.next()) {
    text += decoder.decode(chunk, { stream: true });
  }
  return text;
}

/** Parses the records of a page, which a store returns as JSON. Omits `nextAfter` if it is `null`. */
export async function listed<Row extends { id: number } = any>(
  page: Maybe<Page>,
): Promise<{ rows: Row[]; total: number; nextAfter?: number }> {
  const { records, total, nextAfter } = await page;
  return {
    rows: JSON.parse(`[${textOf(records)}]`),
    total,
    ...(nextAfter !== null && { nextAfter }),
  };
}
