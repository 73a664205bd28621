/** What a move prints: progress, reasons of rejections, differences, and the table. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { formatNumber } from "../../base/count-text.ts";
import { createRejections } from "../files/rejections.ts";
import { withFileErrors } from "../system/streams.ts";
import type { CommandSystem, OutputStream } from "../system/system.ts";
import type { Found } from "./shop-order.ts";
import { formatAmount } from "./values.ts";

export type Report = ReturnType<typeof createReport>;

/** @param directory of the file of rejected orders */
export function createReport(system: CommandSystem, directory: string | undefined) {
  const none = { created: 0, updated: 0, unchanged: 0, erased: 0 };
  const counts = { ...none, rejected: 0, ignored: 0, users: 0 };
  const rejections = createRejections();
  let rejects: OutputStream | null = null;
  function open(): OutputStream | null {
    if (directory === undefined) return null;
    const options = { recursive: true, mode: 0o700 } as const;
    withFileErrors("write", directory, () => mkdirSync(directory, options));
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

export interface Amounts {
  readonly currency: string;
  readonly status: string;
  readonly total: number;
  readonly refunded: number;
}

/** Sums of the shop and of what is here, by currency and status. */
export function createTable() {
  const rows = new Map<string, number[]>();
  return {
    add({ currency, status, total, refunded }: Amounts, side: 0 | 1): void {
      const sums = rows.getOrInsertComputed(`${currency} ${status}`, () => [0, 0, 0, 0, 0, 0]);
      for (const [column, value] of [1, total, refunded].entries())
        sums[2 * column + side] = (sums[2 * column + side] ?? 0) + value;
    },
    text(): string {
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
