/** Lines of an order in another system, which become items. */
import { cut } from "../base/readable-text.ts";
import type { Order } from "./order.ts";

export interface Line {
  readonly sku: string;
  /** The SKU stands for one that is empty. */
  readonly name: string;
  readonly quantity: number;
  amount: number;
}

/** An amount that is no multiple of its quantity becomes one item, such as `3 × Green tea`. */
function toItem({ sku, name, quantity, amount }: Line): Order["items"][number] {
  const code = cut(sku, 64);
  const text = cut(name, 200) || code;
  const isWhole = Number.isInteger(quantity) && quantity >= 1 && quantity <= 1_000_000;
  if (isWhole && amount % quantity === 0)
    return { sku: code, name: text, quantity, unit_price: amount / quantity };
  return { sku: code, name: cut(`${quantity} × ${text}`, 200), quantity: 1, unit_price: amount };
}

/** The items add up to the total of the order. What is more than rounding becomes an item. */
export function itemsOf(lines: Line[], total: number, taxes: number): Order["items"] {
  const rest = lines.reduce((left, { amount }) => left - amount, total);
  const [largest] = lines.toSorted((one, other) => other.amount - one.amount);
  const add = (sku: string, name: string) => lines.push({ sku, name, quantity: 1, amount: rest });
  if (largest !== undefined && Math.abs(rest) <= lines.length && largest.amount + rest >= 0)
    largest.amount += rest;
  else if (rest === taxes) add("tax", "Taxes");
  else add("other", rest < 0 ? "Gift card or discount" : "Other");
  return lines.map(toItem);
}
