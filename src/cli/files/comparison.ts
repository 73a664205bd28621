/** Compares orders of another system with those that are here. */
import { formatAmount } from "../../domain/currency.ts";
import type { Order } from "../../domain/order.ts";

type Amounts = Pick<Order, "currency" | "status" | "total" | "refunded">;

function textsOf({ currency, status, total, refunded }: Amounts): readonly string[] {
  const [all, some] = [total, refunded].map((amount) => formatAmount(amount, currency));
  return [`${all} ${currency}`, status, `${some} ${currency} refunded`];
}

/** Of each order, and of sums by currency and status. */
export function createComparison() {
  const rows = new Map<string, number[]>();
  const differences: string[] = [];
  function count({ currency, status, total, refunded }: Amounts, side: 0 | 1): void {
    const sums = rows.getOrInsertComputed(`${currency} ${status}`, () => [0, 0, 0, 0, 0, 0]);
    for (const [column, value] of [1, total, refunded].entries())
      sums[2 * column + side] = (sums[2 * column + side] ?? 0) + value;
  }
  return {
    /** A line for each order. */
    differences,
    add(reference: string, shop: Amounts, here: Amounts | undefined): void {
      count(shop, 0);
      if (here === undefined) return void differences.push(`${reference}: is not here\n`);
      count(here, 1);
      const others = textsOf(here);
      const different = textsOf(shop).flatMap((text, at) =>
        text === others[at] ? [] : [`${text} in the shop, ${others[at]} here`],
      );
      if (different.length > 0) differences.push(`${reference}: ${different.join("; ")}\n`);
    },
    table(): string {
      const lines = [["currency", "status", "orders", "here", "total", "here", "refunded", "here"]];
      for (const [name, [shop, here, ...sums]] of [...rows].sort()) {
        const [currency = "", status = ""] = name.split(" ");
        const amounts = sums.map((sum) => formatAmount(sum, currency));
        lines.push([currency, status, `${shop}`, `${here}`, ...amounts]);
      }
      const pad = (cell: string, at: number) =>
        at < 2 ? cell.padEnd(9) : cell.padStart(at < 4 ? 7 : 13);
      return lines.map((cells) => `${cells.map(pad).join(" ")}\n`).join("");
    },
  };
}
