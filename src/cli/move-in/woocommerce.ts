/** Orders of the REST API of WooCommerce. @see https://woocommerce.github.io/woocommerce-rest-api-docs/#order-properties */
import { decodeHTMLStrict } from "entities/decode";
import { fail, failField } from "../../base/error.ts";
import { isMembers, listIn, type Members, membersIn } from "../../base/members.ts";
import { readSecretFile } from "../../base/secret.ts";
import { readTime } from "../../domain/time.ts";
import { readObjects } from "../files/json-objects.ts";
import type { Report } from "../files/report.ts";
import { savePages } from "../files/saved-pages.ts";
import { type Bounds, readUrl, SAFE, send } from "../system/request.ts";
import { inFile } from "../system/streams.ts";
import type { CommandSystem, System } from "../system/system.ts";
import type { Move } from "./orders.ts";
import type { Rules } from "./rules.ts";
import { moneyOf, type ShopOrder, shopOrder } from "./shop-order.ts";

function textIn(members: Members, name: string): string {
  const { [name]: value } = members;
  return /string|number/.test(typeof value) ? decodeHTMLStrict(`${value}`).trim() : "";
}

/** @throws {AppError} validation_failed */
function convert(order: Members | null, rules: Rules): ShopOrder | null {
  const text = (name: string) => textIn(order ?? {}, name);
  const [id, status] = [text("id"), text("status")];
  const damaged = "must be a JSON object of the REST API: the file is damaged, cut, or another one";
  if (order === null || id === "") return failField("order", "format", damaged);
  if (rules.ignored.includes(status)) return null;
  if (!Array.isArray(order["line_items"])) failField("line_items", "required", "is required");
  if (text("total") === "") failField("total", "required", "is required");
  const { currency, amountOf } = moneyOf(text("currency"), rules);
  const amountIn = (members: Members, name: string) => amountOf(name, textIn(members, name));
  // The amount of a line is what was paid for it: after discounts, with taxes.
  const linesOf = (list: string, name: string, sku: string) =>
    listIn(order, list).map((line) => ({
      sku: sku || textIn(line, "sku") || `product-${textIn(line, "product_id")}`,
      name: textIn(line, name),
      quantity: sku === "" ? Number(textIn(line, "quantity")) : 1,
      amount: amountIn(line, "total") + amountIn(line, "total_tax"),
    }));
  const refunds = listIn(order, "refunds").map((refund) => amountIn(refund, "total"));
  const [billing, shipping] = [membersIn(order, "billing"), membersIn(order, "shipping")];
  const nameIn = (address: Members) =>
    `${textIn(address, "first_name")} ${textIn(address, "last_name")}`.trim();
  const [utc, local] = [text("date_created_gmt"), text("date_created")];
  const textsOf = (members: Members, names: readonly string[], prefix = "") =>
    names.map((name) => [prefix + name, textIn(members, name)] as const);
  const isCompleted = text("date_completed_gmt") + text("date_completed") !== "";
  return shopOrder(rules, {
    ...{ id, number: text("number") || id, currency, taxes: 0 },
    created: readTime("date_created", utc || local, utc === "" ? rules.time_zone : "UTC"),
    modified: text("date_modified_gmt") || text("date_modified"),
    status: status === "refunded" && isCompleted ? "completed" : status,
    total: amountIn(order, "total"),
    refunded: refunds.reduce((sum, amount) => sum - amount, 0),
    lines: [
      ...linesOf("line_items", "name", ""),
      ...linesOf("shipping_lines", "method_title", "shipping"),
      ...linesOf("fee_lines", "name", "fee"),
    ],
    texts: [
      ...textsOf(order, ["customer_note", "payment_method", "transaction_id"]),
      ...textsOf(billing, Object.keys(billing), "billing_"),
      ...textsOf(shipping, Object.keys(shipping), "shipping_"),
    ],
    account: text("customer_id").replace(/^0$/, ""),
    email: textIn(billing, "email"),
    phone: textIn(billing, "phone") || textIn(shipping, "phone"),
    name: nameIn(billing) || nameIn(shipping) || textIn(billing, "company"),
  });
}

/** @param paths of NDJSON, or of JSON arrays. @throws {AppError} operator if a file cannot be read further */
export async function* readWooCommerce(paths: readonly string[], system: System, { rules }: Move) {
  for (const file of paths) {
    for await (const { line, text, value } of inFile(file, readObjects(system.openInput(file)))) {
      const order = isMembers(value) ? value : null;
      const number = textIn(order ?? {}, "number") || textIn(order ?? {}, "id");
      const place = { file, line, number };
      yield { place, original: order ?? text, convert: () => convert(order, rules) };
    }
  }
}

const bounds: Bounds = {
  timeoutMs: 120_000,
  maxBytes: 64 * 2 ** 20,
  final: [301, 302, 307, 308, 400, 401, 403, 404],
};

export type SaveOptions = Partial<Readonly<Record<"keyFile" | "save", string>>>;

/** @returns the path of the file with all orders. @throws {AppError} usage; operator if a page cannot be read */
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
  const init = { headers: { authorization: `Basic ${btoa(key.replace(/\r?\n/, ":"))}` } };
  const list = `${shop.href.replace(/\/*$/, "")}/wp-json/wc/v3/orders?orderby=id&order=asc`;
  const readPage = (offset: number, size: number) => {
    const url = new URL(`${list}&per_page=${size}&offset=${offset}`);
    return send("read the orders", url, init, bounds, system);
  };
  const onSaved = (count: number) => report.progress("Saved", count - (count % 500));
  const name = `${shop.host}${shop.pathname}`.replace(/\W*$/, "").replaceAll(/[^\w.]+/g, "-");
  await savePages(save, name, readPage, system, onSaved);
  return save;
}
