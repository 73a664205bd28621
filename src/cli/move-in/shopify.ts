/**
 * Exports of orders from Shopify: CSV with a row for each item, of which only the first one of an order has its total. Rows
 * of an order can be apart, if a spreadsheet has sorted them, and in two files. @see https://help.shopify.com
 */
import { failField } from "../../base/error.ts";
import { ROUNDED_NUMBER } from "../../domain/import-rules.ts";
import { readTime } from "../../domain/time.ts";
import { type Row, readTable } from "../files/csv.ts";
import { decodeText, encodingOf } from "../files/encoding.ts";
import type { Place } from "../files/spool.ts";
import { inFile } from "../system/streams.ts";
import type { System } from "../system/system.ts";
import type { Move } from "./orders.ts";
import type { Rules } from "./rules.ts";
import { moneyOf, type ShopOrder, shopOrder } from "./shop-order.ts";

const REQUIRED = [
  ...["Name", "Email", "Financial Status", "Created at", "Currency", "Total"],
  ...["Lineitem quantity", "Lineitem name"],
];

/** The rows of an order in one file, in the spool. */
interface Part {
  readonly file: string;
  readonly rows: Place[];
  /** What tells the order from that of another shop; `null` without the row with the total: it begins in another file. */
  id: string | null;
}

const at = ({ cells }: Pick<Row, "cells">, column: string) => cells[column] ?? "";

const totalIn = (rows: readonly Row[]) => rows.find((row) => at(row, "Total") !== "");

/** What the rows of an order sell. */
function itemLines(rows: readonly Row[], amountOf: ReturnType<typeof moneyOf>["amountOf"]) {
  return rows.flatMap((row) => {
    const [quantity, name] = [at(row, "Lineitem quantity"), at(row, "Lineitem name")];
    if (!/^\d*$/.test(quantity) || (quantity === "" && name !== ""))
      failField("Lineitem quantity", "format", `must be a number, not ${JSON.stringify(quantity)}`);
    const amount = Number(quantity) * amountOf("Lineitem price", at(row, "Lineitem price"));
    const sku = at(row, "Lineitem sku") || "item";
    const line = { sku, name: name || "Item", quantity: Number(quantity), amount };
    return line.quantity > 0 ? [line] : [];
  });
}

const TEXTS = /^(?:(?:Billing|Shipping) .*|Phone|Notes|Note Attributes|Tags|Payment Method)$/;

function* textsOf({ cells }: Row): Generator<readonly [string, string]> {
  yield ["shop_financial_status", cells["Financial Status"] ?? ""];
  // Shopify writes `'12345`, so that spreadsheets keep a postcode.
  for (const [column, text] of Object.entries(cells))
    if (TEXTS.test(column))
      yield [column.toLowerCase().replaceAll(" ", "_"), text.replace(/^'/, "")];
}

/** @throws {AppError} validation_failed */
function convertRows(rows: readonly Row[], rules: Rules): ShopOrder {
  const order = totalIn(rows);
  const elsewhere = "has no row with its total: it begins in another file";
  if (order === undefined) return failField("order", "required", elsewhere);
  const cut = rows.find(({ isCut }) => isCut);
  if (cut) failField("order", "format", `is cut at line ${cut.line}: cells are missing there`);
  const text = (column: string) => at(order, column);
  const { currency, amountOf } = moneyOf(text("Currency"), rules);
  const amountIn = (column: string) => amountOf(column, text(column));
  const [shipping, discount] = [amountIn("Shipping"), amountIn("Discount Amount")];
  const sold = itemLines(rows, amountOf);
  // A discount can be one of the shipping.
  const least = amountIn("Subtotal") + discount - shipping;
  if (sold.reduce((sum, { amount }) => sum + amount, 0) < least)
    failField("items", "range", "are less than the subtotal: rows of the order are missing");
  const more = [
    { sku: "shipping", name: text("Shipping Method") || "Shipping", quantity: 1, amount: shipping },
    { sku: "discount", name: text("Discount Code") || "Discount", quantity: 1, amount: -discount },
  ];
  const isFulfilled = text("Fulfillment Status") === "fulfilled";
  const status = isFulfilled ? "fulfilled" : text("Financial Status") || "pending";
  return shopOrder(rules, {
    id: ROUNDED_NUMBER.test(text("Id")) ? "" : text("Id"),
    ...{ number: text("Name"), currency, modified: "", account: "", texts: textsOf(order) },
    status: text("Cancelled at") === "" ? status : "cancelled",
    created: readTime("Created at", text("Created at"), rules.time_zone),
    total: amountIn("Total"),
    refunded: amountIn("Refunded Amount"),
    lines: [...sold, ...more.filter(({ amount }) => amount !== 0)],
    taxes: amountIn("Taxes"),
    email: text("Email"),
    phone: text("Phone") || text("Billing Phone") || text("Shipping Phone"),
    name: text("Billing Name") || text("Shipping Name"),
  });
}

/**
 * An order can be in several files, in one of them cut, or with its last rows at the beginning of another one.
 * @param parts the newest first
 * @param loose rows that another file begins with
 */
function convert(parts: readonly Row[][], loose: readonly Row[], rules: Rules): ShopOrder {
  const candidates = parts.flatMap((rows) => (loose[0] ? [rows, [...rows, ...loose]] : [rows]));
  const failures: unknown[] = [];
  const orders = candidates.flatMap((rows) => {
    try {
      return [convertRows(rows, rules)];
    } catch (error) {
      failures.push(error);
      return [];
    }
  });
  const isWhole = ({ record }: ShopOrder) => record.items.every(({ sku }) => sku !== "other");
  const best = orders.find(isWhole) ?? orders[0];
  if (best === undefined) throw failures[0];
  return best;
}

/** @throws {AppError} operator if a file cannot be read further */
export async function* readShopify(paths: readonly string[], system: System, move: Move) {
  const { rules, spool } = move;
  const orders = new Map<string, Part[]>();
  for (const file of paths) {
    const text = decodeText(system.openInput(file), await encodingOf(system.openInput(file)));
    for await (const row of inFile(file, readTable(text, REQUIRED))) {
      const parts = orders.getOrInsert(at(row, "Name"), []);
      // A spreadsheet rounds ids, so that those of two shops are the same.
      const idColumn = ROUNDED_NUMBER.test(at(row, "Id")) ? "Created at" : "Id";
      const id = at(row, "Total") === "" ? null : at(row, idColumn);
      let part = parts.at(-1);
      if (part?.file !== file || (id !== null && part.id !== null)) {
        part = { file, rows: [], id };
        parts.push(part);
      }
      part.id ??= id;
      part.rows.push(spool.add(row));
    }
  }
  const read = ({ rows }: Part) => rows.map((row) => spool.read<Row>(row));
  for (const [number, parts] of orders) {
    const loose = parts.filter(({ id }) => id === null);
    const byId = Map.groupBy(
      parts.filter(({ id }) => id !== null),
      ({ id }) => id,
    );
    // Orders of two shops: what compares them tells.
    for (const some of byId.size === 0 ? [loose] : byId.values()) {
      const [newest = [], ...others] = some.toReversed().map(read);
      const { line = 0 } = totalIn(newest) ?? newest[0] ?? {};
      yield {
        place: { file: some.at(-1)?.file ?? "", line, number },
        original: newest.map(({ cells }) => cells),
        convert: () => convert([newest, ...others], loose.flatMap(read), rules),
      };
    }
  }
}
