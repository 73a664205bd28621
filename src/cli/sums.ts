import { AppError, fail } from "../base/error.ts";
import { boundsOf, OrderSum, type SumsQuery } from "../domain/sums.ts";
import { csvFormatter } from "./files/csv.ts";
import { type Period, readPeriod } from "./period.ts";
import { type CommandSystem, withStore } from "./system/system.ts";

interface SumsOptions extends Required<Period>, Pick<SumsQuery, "interval"> {
  readonly timeZone: string;
}

/** A server may be running. @throws {AppError} usage as `boundsOf` and `sumsText`, naming the flag */
export async function printSums(system: CommandSystem, options: SumsOptions): Promise<void> {
  const { interval, timeZone } = options;
  const { start, end } = readPeriod(options);
  const query = { created_from: start, created_to: end, interval, time_zone: timeZone };
  try {
    const bounds = boundsOf(query);
    const text = await withStore(system, { mode: "read" }, (store) => store.sumOrders(bounds));
    const { header, formatRecords } = csvFormatter(OrderSum);
    system.stdout(header + formatRecords(JSON.parse(text)));
  } catch (error) {
    const [first] = error instanceof AppError ? error.problems : [];
    if (first === undefined) throw error;
    const flag = first.field.replace("created_", "").replace("_", "-");
    fail("usage", `--${flag} ${first.problem}`);
  }
}
