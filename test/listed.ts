import type { Page } from "../src/page.ts";

function textOf(records: Page["records"]): string {
  if (typeof records === "string") return records;
  const decoder = new TextDecoder();
  let text = "";
  for (let chunk = records.next(); chunk !== null; chunk = records.next()) {
    text += decoder.decode(chunk, { stream: true });
  }
  return text;
}

/** A page with its records parsed: a store returns them as JSON. */
export async function listed<Row extends { id: number } = any>(
  page: Promise<Page>,
): Promise<{ rows: Row[]; total: number }> {
  const { records, total } = await page;
  return { rows: JSON.parse(`[${textOf(records)}]`), total };
}
