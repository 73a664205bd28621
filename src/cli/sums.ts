import { AppError, fail } from "../base/error.ts";
import { readTime } from "../domain/config.ts";
import { boundsOf, OrderSum, type SumsQuery } from "../domain/sums.ts";
import { roundUp } from "../domain/time.ts";
import { csvFormatter } from "./files/csv.ts";
import { type CommandSystem, withStore } from "./system/system.ts";

interface SumsOptions extends Pick<SumsQuery, "interval"> {
  readonly from: string;
  readonly to: string;
  readonly timeZone: string;
}

const flags: Readonly<Record<string, string>> = {
  created_to: "--to",
  interval: "--interval",
  time_zone: "--time-zone",
};

/** A server may be running. @throws {AppError} usage as `boundsOf` and `sumsText`, naming the flag */
export async function printSums(system: CommandSystem, options: SumsOptions): Promise<void> {
  const { interval, timeZone } = options;
  const from = readTime("--from", options.from);
  const to = readTime("--to", options.to);
  if (from >= to) fail("usage", "--from must be before --to");
  const query = {
    created_from: roundUp(from),
    created_to: roundUp(to),
    interval,
    time_zone: timeZone,
  };
  try {
    const bounds = boundsOf(query);
    const text = await withStore(system, { mode: "read" }, (store) => store.sumOrders(bounds));
    const { header, formatRecords } = csvFormatter(OrderSum);
    system.stdout(header + formatRecords(JSON.parse(text)));
  } catch (error) {
    const [first] = error instanceof AppError ? error.problems : [];
    if (first === undefined) throw error;
    fail("usage", `${flags[first.field]} ${first.problem}`);
  }
}
