/** What a move prints meanwhile. */
import { formatNumber } from "../../base/count-text.ts";
import { createRejections, createRejectsFile } from "../files/rejections.ts";
import type { CommandSystem } from "../system/system.ts";
import type { Found } from "./shop-order.ts";

export type Report = ReturnType<typeof createReport>;

/** @param directory of the file of rejected orders */
export function createReport(system: CommandSystem, directory: string | undefined) {
  const brought = { created: 0, updated: 0, unchanged: 0, erased: 0 };
  const counts = { ...brought, rejected: 0, ignored: 0, users: 0 };
  const rejections = createRejections();
  const rejects = createRejectsFile(directory, system);
  return {
    counts,
    /** @param order what the shop has, or what would have been brought */
    reject({ file, line, number }: Found["place"], reason: string, order: unknown): void {
      counts.rejected += 1;
      rejects.add({ reason, file, line, number, order });
      rejections.add(`${file}, line ${line}, order ${number}`, reason);
    },
    progress(verb: string, count: number, isEnd = false): void {
      if (!system.stdoutIsTerminal || (count % 500 !== 0 && !isEnd)) return;
      system.stderr(`\r${verb} ${formatNumber(count)} orders\u001b[K${isEnd ? "\n" : ""}`);
    },
    finish(): void {
      system.stderr(rejections.text());
      rejects.finish();
    },
    [Symbol.dispose]: rejects[Symbol.dispose],
  };
}
