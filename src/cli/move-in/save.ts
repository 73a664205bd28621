/** Saves the orders of a WooCommerce shop from its REST API, page by page, as NDJSON. */
import { appendFileSync, existsSync, truncateSync } from "node:fs";
import { AppError, fail } from "../../base/error.ts";
import { readSecretFile } from "../../base/secret.ts";
import { fsyncPath, publishNew } from "../../base/temporary-file.ts";
import { readObjects } from "../files/json-objects.ts";
import { type Bounds, createRetries, readUrl, SAFE, send } from "../system/request.ts";
import { withFileErrors } from "../system/streams.ts";
import type { CommandSystem } from "../system/system.ts";
import type { Report } from "./report.ts";
import { inFile } from "./shop-order.ts";
import { parseOrder } from "./woocommerce.ts";

/** Before each page: the shop has other work. */
const PAUSE_MS = 100;
/** Of one page, in about two minutes. */
const MAX_FAILURES = 7;
const MAX_PAGE = 100;
/** A page that is too much for the shop is halved. */
const MIN_PAGE = 10;
const bounds: Bounds = {
  timeoutMs: 120_000,
  maxBytes: 64 * 2 ** 20,
  final: [301, 302, 307, 308, 400, 401, 403, 404],
};

type ShopOrder = Readonly<Record<string, unknown>> & { readonly id: number };

export interface SaveOptions {
  readonly keyFile?: string;
  readonly save?: string;
}

/** @throws {AppError} unavailable */
function parsePage(text: string): readonly ShopOrder[] {
  try {
    const page: unknown = JSON.parse(text);
    if (Array.isArray(page) && page.every((order) => Number.isSafeInteger(order?.id))) return page;
  } catch {}
  return fail("unavailable", "Cannot read the orders: the response is no page of them");
}

/** Reads what an interrupted run has saved. A last line that is cut is removed. */
async function resume(path: string, { openInput }: CommandSystem) {
  const saved = { count: 0, last: 0 };
  let [size, end] = [0, 0];
  for await (const chunk of openInput(path)) {
    const at = chunk.lastIndexOf(0x0a);
    if (at !== -1) end = size + at + 1;
    size += chunk.length;
  }
  truncateSync(path, end);
  for await (const { text } of inFile(path, readObjects(openInput(path)))) {
    saved.count += 1;
    saved.last = Number(parseOrder(text)?.["id"]);
  }
  return saved;
}

/**
 * A page begins with the last order of the page before: if orders are deleted meanwhile, the offset goes back until it does.
 * @returns the path of the file
 * @throws {AppError} usage; operator if a page cannot be read
 */
export async function saveOrders(
  source: string,
  { keyFile, save }: SaveOptions,
  system: CommandSystem,
  report: Report,
): Promise<string> {
  const shop = readUrl("source", source, SAFE, ", or http://… on this machine");
  if (keyFile === undefined || save === undefined)
    return fail("usage", "A shop needs --key-file and --save");
  const expected = "two lines, the key ck_… and the secret cs_…";
  const key = readSecretFile("--key-file", keyFile, /^ck_\w+\r?\ncs_\w+$/, expected);
  const complete = "it exists, and is complete. Use it as a source, or another name";
  if (existsSync(save)) fail("operator", `Cannot write ${save}: ${complete}`);
  // Of this shop: another one would be continued after its last id.
  const path = `${save}.${shop.hostname}.partial`;
  const authorization = `Basic ${btoa(key.replace(/\r?\n/, ":"))}`;
  const retries = createRetries(system);
  let [count, last, size] = [0, 0, MAX_PAGE];

  async function readPage(offset: number): Promise<readonly ShopOrder[]> {
    for (let failures = 1; ; failures += 1) {
      await system.clock.sleep(PAUSE_MS);
      const query = `orderby=id&order=asc&per_page=${size}&offset=${offset}`;
      const url = new URL(`${shop.href.replace(/\/*$/, "")}/wp-json/wc/v3/orders?${query}`);
      try {
        const init = { headers: { authorization } };
        const page = parsePage(await send("read the orders", url, init, bounds, system));
        retries.end();
        return page;
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        const advice = `${count} orders are in ${path}: run the command again to continue`;
        if (error.code !== "unavailable" || failures === MAX_FAILURES)
          fail("operator", `${error.message}; ${advice}`);
        size = Math.max(MIN_PAGE, Math.floor(size / 2));
        await retries.pause(error, "trying again");
      }
    }
  }

  function append(orders: readonly ShopOrder[]): void {
    const text = orders.map((order) => `${JSON.stringify(order)}\n`).join("");
    withFileErrors("write", path, () => appendFileSync(path, text, { mode: 0o600 }));
  }

  append([]);
  ({ count, last } = await resume(path, system));
  let back = 1;
  for (let offset = Math.max(0, count - 1); ; ) {
    const page = await readPage(offset);
    if (offset > 0 && (page[0]?.id ?? Number.POSITIVE_INFINITY) > last) {
      offset = Math.max(0, offset - back);
      back *= 2;
      continue;
    }
    back = 1;
    const added = page.filter(({ id }) => id > last);
    if (added.length === 0 && offset > count)
      fail("operator", "Cannot read the orders: the shop returns the same ones for every offset");
    // Only the last order itself.
    if (added.length === 0 && page.length < 2) break;
    append(added);
    last = added.at(-1)?.id ?? last;
    count += added.length;
    offset += page.length - 1;
    report.progress("Saved", count - (count % 500));
  }
  fsyncPath(path);
  publishNew(path, save);
  return save;
}
