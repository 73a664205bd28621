/** Orders of the REST API of WooCommerce. @see https://woocommerce.github.io/woocommerce-rest-api-docs/#order-properties */
import { failField } from "../../base/error.ts";
import { parseOrder, readJsonOrders } from "./json-orders.ts";
import type { Rules } from "./rules.ts";
import {
  type Found,
  inFile,
  moneyOf,
  type OpenInput,
  type ShopOrder,
  shopOrder,
} from "./shop-order.ts";
import type { Members } from "./values.ts";
import { decodeEntities, listIn, membersIn, textIn, timeOf } from "./values.ts";

function* textsOf(order: Members): Generator<readonly [string, string]> {
  for (const name of ["customer_note", "payment_method", "transaction_id"])
    yield [name, decodeEntities(textIn(order, name))];
  for (const address of ["billing", "shipping"]) {
    const members = membersIn(order, address);
    for (const name of Object.keys(members))
      yield [`${address}_${name}`, decodeEntities(textIn(members, name))];
  }
}

function timeIn(order: Members, name: string, { time_zone }: Rules): string {
  const utc = textIn(order, `${name}_gmt`);
  const [text, zone] = utc === "" ? [textIn(order, name), time_zone] : [utc, "UTC"];
  return timeOf(name, text, zone, "2026-11-20T18:57:03");
}

/** @throws {AppError} validation_failed */
function convert(order: Members, rules: Rules): ShopOrder | null {
  const text = (name: string) => textIn(order, name);
  const status = text("status");
  if (rules.ignored.includes(status)) return null;
  const id = text("id");
  if (id === "" || !Array.isArray(order["line_items"]))
    return failField("order", "format", "must have id and line_items, as in the REST API");
  if (text("total") === "") failField("total", "required", "is required");
  const { currency, amountOf } = moneyOf(text("currency"), rules);
  const amountIn = (members: Members, name: string) => amountOf(name, textIn(members, name));
  // The amount of a line is what was paid for it: after discounts, with taxes.
  const linesOf = (list: string, name: string, sku: string) =>
    listIn(order, list).map((line) => ({
      sku: sku || textIn(line, "sku") || `product-${textIn(line, "product_id")}`,
      name: decodeEntities(textIn(line, name)),
      quantity: sku === "" ? Number(textIn(line, "quantity")) : 1,
      amount: amountIn(line, "total") + amountIn(line, "total_tax"),
    }));
  const refunds = listIn(order, "refunds").map((refund) => amountIn(refund, "total"));
  const [billing, shipping] = [membersIn(order, "billing"), membersIn(order, "shipping")];
  const nameIn = (address: Members) =>
    decodeEntities(`${textIn(address, "first_name")} ${textIn(address, "last_name")}`.trim());
  const isCompleted = text("date_completed_gmt") + text("date_completed") !== "";
  return shopOrder(rules, {
    ...{ id, number: text("number") || id, currency, taxes: 0, texts: textsOf(order) },
    created: timeIn(order, "date_created", rules),
    modified: text("date_modified_gmt") || text("date_modified"),
    status: status === "refunded" && isCompleted ? "completed" : status,
    total: amountIn(order, "total"),
    refunded: refunds.reduce((sum, amount) => sum - amount, 0),
    lines: [
      ...linesOf("line_items", "name", ""),
      ...linesOf("shipping_lines", "method_title", "shipping"),
      ...linesOf("fee_lines", "name", "fee"),
    ],
    account: text("customer_id").replace(/^0$/, ""),
    email: textIn(billing, "email"),
    phone: textIn(billing, "phone") || textIn(shipping, "phone"),
    name: nameIn(billing) || nameIn(shipping) || textIn(billing, "company"),
  });
}

/** @param paths of NDJSON, or of JSON arrays. @throws {AppError} operator if a file cannot be read further */
export async function* readWooCommerce(
  paths: readonly string[],
  openInput: OpenInput,
  rules: Rules,
): AsyncGenerator<Found> {
  for (const file of paths) {
    for await (const { line, text } of inFile(file, readJsonOrders(openInput(file)))) {
      const order = parseOrder(text);
      const number = textIn(order ?? {}, "number") || textIn(order ?? {}, "id");
      const damaged =
        "must be a JSON object of the REST API: the file is damaged, cut, or another one";
      yield {
        place: { file, line, number },
        original: order ?? text,
        convert: () =>
          order === null ? failField("order", "format", damaged) : convert(order, rules),
      };
    }
  }
}
