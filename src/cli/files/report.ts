/** What a command reports that brings orders of another system: progress, rejected orders, and a summary. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { formatCount, formatNumber } from "../../base/count-text.ts";
import { fail } from "../../base/error.ts";
import { withFileErrors } from "../system/streams.ts";
import type { CommandSystem, OutputStream } from "../system/system.ts";
import { createRejections } from "./rejections.ts";

/** Where an order is: the line on which it begins, from 1, and what the other system calls it. */
export interface FilePlace {
  readonly file: string;
  readonly line: number;
  readonly number: string;
}

export type Report = ReturnType<typeof createReport>;

/** @param directory of a file of NDJSON, which has the time in its name, and is made with the first rejected order */
export function createReport(system: CommandSystem, directory: string | undefined) {
  const brought = { created: 0, updated: 0, unchanged: 0, erased: 0 };
  const counts = { ...brought, rejected: 0, ignored: 0, users: 0 };
  const rejections = createRejections();
  let rejects: OutputStream | null = null;
  if (directory !== undefined)
    withFileErrors("write", directory, () =>
      mkdirSync(directory, { recursive: true, mode: 0o700 }),
    );
  function write(record: object): void {
    if (directory === undefined) return;
    const time = system.now().toISOString().replaceAll(/\W/g, "");
    const path = join(directory, `rejected-${time}.ndjson`);
    rejects ??= system.openOutput(path, false, system.config.databaseUrl);
    rejects.write(`${JSON.stringify(record)}\n`);
  }
  return {
    counts,
    /** @param order as it is there, or would have been brought */
    reject({ file, line, number }: FilePlace, reason: string, order: unknown): void {
      counts.rejected += 1;
      write({ reason, file, line, number, order });
      rejections.add(`${file}, line ${line}, order ${number}`, reason);
    },
    progress(verb: string, count: number, isEnd = false): void {
      if (!system.stdoutIsTerminal || (count % 500 !== 0 && !isEnd)) return;
      system.stderr(`\r${verb} ${formatNumber(count)} orders\u001b[K${isEnd ? "\n" : ""}`);
    },
    /** @param did with what the summary begins. @throws {AppError} operator if orders are rejected or differ */
    finish(did: string, different: number): void {
      system.stderr(rejections.text());
      rejects?.finish();
      const names = ["updated", "unchanged", "erased", "rejected", "ignored"] as const;
      const others = names.map((name) => `${formatNumber(counts[name])} ${name}`).join(", ");
      const [orders, users] = [
        formatCount(counts.created, "order"),
        formatCount(counts.users, "user"),
      ];
      const summary = `${did} ${orders} (${others}) and ${users}`;
      const differ = different === 0 ? "" : `; ${formatNumber(different)} orders differ`;
      if (different + counts.rejected > 0) fail("operator", summary + differ);
      system.stderr(`${summary}\n`);
    },
    [Symbol.dispose]: () => rejects?.[Symbol.dispose](),
  };
}
