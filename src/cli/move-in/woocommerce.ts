/** Orders of the REST API of WooCommerce. @see https://woocommerce.github.io/woocommerce-rest-api-docs/#order-properties */
import { decodeHTMLStrict } from "entities/decode";
import { failField } from "../../base/error.ts";
import { readObjects } from "../files/json-objects.ts";
import type { System } from "../system/system.ts";
import type { Rules } from "./rules.ts";
import { type Found, inFile, moneyOf, type ShopOrder, shopOrder, timeOf } from "./shop-order.ts";

/** Of an object or an array that others have written: any value is possible. */
type Members = Readonly<Record<string, unknown>>;

const isMembers = (value: unknown): value is Members => typeof value === "object" && value !== null;

const membersIn = (members: Members, name: string): Members =>
  isMembers(members[name]) ? members[name] : {};

const listIn = (members: Members, name: string): readonly Members[] =>
  Object.values(membersIn(members, name)).filter(isMembers);

function textIn(members: Members, name: string): string {
  const { [name]: value } = members;
  return /string|number/.test(typeof value) ? decodeHTMLStrict(`${value}`).trim() : "";
}

/** @returns `null` if the text is no object */
export function parseOrder(text: string): Members | null {
  try {
    const value: unknown = JSON.parse(text);
    return isMembers(value) ? value : null;
  } catch {
    return null;
  }
}

function* textsOf(order: Members): Generator<readonly [string, string]> {
  for (const name of ["customer_note", "payment_method", "transaction_id"])
    yield [name, textIn(order, name)];
  for (const address of ["billing", "shipping"]) {
    const members = membersIn(order, address);
    for (const name of Object.keys(members)) yield [`${address}_${name}`, textIn(members, name)];
  }
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
  const isCompleted = text("date_completed_gmt") + text("date_completed") !== "";
  return shopOrder(rules, {
    ...{ id, number: text("number") || id, currency, taxes: 0, texts: textsOf(order) },
    created: timeOf("date_created", utc || local, utc === "" ? rules.time_zone : "UTC"),
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
  { openInput }: System,
  rules: Rules,
): AsyncGenerator<Found> {
  for (const file of paths) {
    for await (const { line, text } of inFile(file, readObjects(openInput(file)))) {
      const order = parseOrder(text);
      const number = textIn(order ?? {}, "number") || textIn(order ?? {}, "id");
      const place = { file, line, number };
      yield { place, original: order ?? text, convert: () => convert(order, rules) };
    }
  }
}
