/** What a move prints: progress, reasons of rejections, differences, and the table. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { formatNumber } from "../../base/count-text.ts";
import { formatAmount } from "../../domain/currency.ts";
import type { Order } from "../../domain/order.ts";
import { createRejections } from "../files/rejections.ts";
import { withFileErrors } from "../system/streams.ts";
import type { CommandSystem, OutputStream } from "../system/system.ts";
import type { Found } from "./shop-order.ts";

export type Report = ReturnType<typeof createReport>;

/** @param directory of the file of rejected orders */
export function createReport(system: CommandSystem, directory: string | undefined) {
  const brought = { created: 0, updated: 0, unchanged: 0, erased: 0 };
  const counts = { ...brought, rejected: 0, ignored: 0, users: 0 };
  const rejections = createRejections();
  let rejects: OutputStream | null = null;
  if (directory !== undefined)
    withFileErrors("write", directory, () =>
      mkdirSync(directory, { recursive: true, mode: 0o700 }),
    );
  function open(): OutputStream | null {
    if (directory === undefined) return null;
    const time = system.now().toISOString().replaceAll(/\W/g, "");
    const path = join(directory, `rejected-${time}.ndjson`);
    return system.openOutput(path, false, system.config.databaseUrl);
  }
  return {
    counts,
    /** @param order what the shop has, or what would have been brought */
    reject({ file, line, number }: Found["place"], reason: string, order: unknown): void {
      counts.rejected += 1;
      rejects ??= open();
      rejects?.write(`${JSON.stringify({ reason, file, line, number, order })}\n`);
      rejections.add(`${file}, line ${line}, order ${number}`, reason);
    },
    progress(verb: string, count: number, isEnd = false): void {
      if (!system.stdoutIsTerminal || (count % 500 !== 0 && !isEnd)) return;
      system.stderr(`\r${verb} ${formatNumber(count)} orders\u001b[K${isEnd ? "\n" : ""}`);
    },
    finish(): void {
      system.stderr(rejections.text());
      rejects?.finish();
    },
    [Symbol.dispose]: () => rejects?.[Symbol.dispose](),
  };
}

type Amounts = Pick<Order, "currency" | "status" | "total" | "refunded">;

function textsOf({ currency, status, total, refunded }: Amounts): readonly string[] {
  const [all, some] = [total, refunded].map((amount) => formatAmount(amount, currency));
  return [`${all} ${currency}`, status, `${some} ${currency} refunded`];
}

/** Compares the shop with what is here: each order, and sums by currency and status. */
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
