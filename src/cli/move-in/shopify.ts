/**
 * Exports of orders from Shopify: CSV with a row for each item, of which only the first one of an order has its total. Rows
 * of an order can be apart, if a spreadsheet has sorted them, and in two files. @see https://help.shopify.com
 */
import { failField } from "../../base/error.ts";
import { readRows } from "../files/csv.ts";
import { decodeText, encodingOf } from "../files/encoding.ts";
import type { Rules } from "./rules.ts";
import {
  type Found,
  inFile,
  moneyOf,
  type OpenInput,
  type ShopOrder,
  shopOrder,
} from "./shop-order.ts";
import type { Place, Spool } from "./spool.ts";
import { isRounded, timeOf } from "./values.ts";

const REQUIRED = [
  ...["Name", "Email", "Financial Status", "Created at", "Currency", "Total"],
  ...["Lineitem quantity", "Lineitem name"],
];

/** Text by column. Empty cells are left out. */
type Cells = Readonly<Record<string, string>>;

interface Row {
  readonly cells: Cells;
  readonly line: number;
  /** Whether it has fewer cells than the header. */
  readonly isCut: boolean;
}

/** The rows of an order in one file, in the spool. One of them has the total, unless the order begins in another file. */
interface Group {
  readonly file: string;
  readonly rows: Place[];
  hasTotal: boolean;
}

const at = (cells: Cells, column: string) => cells[column] ?? "";

/** @throws {AppError} validation_failed if it is no export of orders, or the rest cannot be read */
async function* readCells(text: AsyncGenerator<string>): AsyncGenerator<Row> {
  let names: readonly string[] | null = null;
  for await (const { cells, line } of readRows(text)) {
    const all = cells.map((cell) => cell.trim());
    if (names === null) {
      const missing = REQUIRED.filter((name) => !all.includes(name)).join(", ");
      if (missing !== "") failField("header", "required", `lacks the columns ${missing}`);
      names = all;
      continue;
    }
    const pairs = all.map((cell, index) => [names?.[index] ?? "", cell] as const);
    const filled = Object.fromEntries(pairs.filter(([, cell]) => cell !== ""));
    yield { cells: filled, line, isCut: all.length < names.length };
  }
}

/** What the rows of an order sell. */
function itemLines(rows: readonly Row[], amountOf: ReturnType<typeof moneyOf>["amountOf"]) {
  return rows.flatMap(({ cells }) => {
    const [quantity, name] = [at(cells, "Lineitem quantity"), at(cells, "Lineitem name")];
    const wrong = `must be a number, not ${JSON.stringify(quantity)}`;
    if (!/^\d*$/.test(quantity) || (quantity === "" && name !== ""))
      failField("Lineitem quantity", "format", wrong);
    const amount = Number(quantity) * amountOf("Lineitem price", at(cells, "Lineitem price"));
    const sku = at(cells, "Lineitem sku") || "item";
    const line = { sku, name: name || "Item", quantity: Number(quantity), amount };
    return line.quantity > 0 ? [line] : [];
  });
}

function shopStatusOf(order: Cells): string {
  if (at(order, "Cancelled at") !== "") return "cancelled";
  if (at(order, "Fulfillment Status") === "fulfilled") return "fulfilled";
  return at(order, "Financial Status") || "pending";
}

const TEXTS = /^(?:(?:Billing|Shipping) .*|Phone|Notes|Note Attributes|Tags|Payment Method)$/;

function* textsOf(order: Cells): Generator<readonly [string, string]> {
  yield ["shop_financial_status", at(order, "Financial Status")];
  // Shopify writes `'12345`, so that spreadsheets keep a postcode.
  for (const [column, text] of Object.entries(order))
    if (TEXTS.test(column))
      yield [column.toLowerCase().replaceAll(" ", "_"), text.replace(/^'/, "")];
}

/** @param order the row with the total. @throws {AppError} validation_failed */
function convertRows(order: Cells, rows: readonly Row[], rules: Rules): ShopOrder {
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
  const example = "2026-11-20 18:57:03 +0100";
  return shopOrder(rules, {
    id: isRounded(text("Id")) ? "" : text("Id"),
    ...{ number: text("Name"), currency, modified: "", status: shopStatusOf(order) },
    created: timeOf("Created at", text("Created at"), rules.time_zone, example),
    total: amountIn("Total"),
    refunded: amountIn("Refunded Amount"),
    lines: [...sold, ...more.filter(({ amount }) => amount !== 0)],
    taxes: amountIn("Taxes"),
    ...{ account: "", email: text("Email"), texts: textsOf(order) },
    phone: text("Phone") || text("Billing Phone") || text("Shipping Phone"),
    name: text("Billing Name") || text("Shipping Name"),
  });
}

const totalIn = (rows: readonly Row[]) => rows.find(({ cells }) => at(cells, "Total") !== "");

/** An order can be in several files, in one of them cut, or with its last rows at the beginning of another one. */
function convert(groups: readonly (readonly Row[])[], rules: Rules): ShopOrder {
  const others = groups.filter((rows) => !totalIn(rows)).flat();
  const whole = groups.filter(totalIn).toReversed();
  const candidates = whole.flatMap((rows) =>
    others.length > 0 ? [rows, [...rows, ...others]] : [rows],
  );
  let best: ShopOrder | null = null;
  let failure: unknown = null;
  for (const rows of candidates) {
    try {
      const order = convertRows(totalIn(rows)?.cells ?? {}, rows, rules);
      if (!order.record.items.some(({ sku }) => sku === "other")) return order;
      best ??= order;
    } catch (error) {
      failure ??= error;
    }
  }
  if (best !== null) return best;
  if (failure !== null) throw failure;
  return failField("order", "required", "has no row with its total: it begins in another file");
}

/** @throws {AppError} operator if a file cannot be read further */
export async function* readShopify(
  paths: readonly string[],
  openInput: OpenInput,
  rules: Rules,
  spool: Spool,
): AsyncGenerator<Found> {
  const orders = new Map<string, Group[]>();
  for (const file of paths) {
    const text = decodeText(openInput(file), await encodingOf(openInput(file)));
    for await (const row of inFile(file, readCells(text))) {
      const groups = orders.getOrInsert(at(row.cells, "Name"), []);
      const hasTotal = at(row.cells, "Total") !== "";
      let group = groups.at(-1);
      if (group?.file !== file || (hasTotal && group.hasTotal)) {
        group = { file, rows: [], hasTotal };
        groups.push(group);
      }
      group.hasTotal ||= hasTotal;
      group.rows.push(spool.add(row));
    }
  }
  for (const [number, parts] of orders) {
    const groups = parts.map(({ rows }) => rows.map((row) => spool.read<Row>(row)));
    // A spreadsheet rounds ids, so that those of two shops are the same.
    const idOf = ({ cells }: Row) => at(cells, isRounded(at(cells, "Id")) ? "Created at" : "Id");
    const ids = new Set(groups.flatMap((rows) => totalIn(rows) ?? []).map(idOf));
    const rows = groups.at(-1) ?? [];
    const { line = 0 } = totalIn(rows) ?? rows[0] ?? {};
    const place = { file: parts.at(-1)?.file ?? "", line, number };
    const original = rows.map(({ cells }) => cells);
    // Two shops: what compares the orders tells.
    for (const some of ids.size < 2 ? [groups] : groups.map((each) => [each]))
      yield { place, original, convert: () => convert(some, rules) };
  }
}
