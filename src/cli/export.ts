import { statSync } from "node:fs";
import { CHECKSUM_SUFFIX, formatChecksum } from "../base/checksum.ts";
import { formatCount } from "../base/count-text.ts";
import { AppError, fail } from "../base/error.ts";
import { yieldToEventLoop } from "../base/event-loop.ts";
import type { MaybePromise } from "../base/maybe-promise.ts";
import { readWords } from "../domain/config.ts";
import { Order, orderStatuses } from "../domain/order.ts";
import { ALWAYS_FITTING, type Page, type PageQuery, type Sort } from "../domain/page.ts";
import type { RecordTable } from "../domain/record.ts";
import type { Store } from "../domain/store.ts";
import { User } from "../domain/user.ts";
import { csvFormatter } from "./files/csv.ts";
import { type FileFormat, formatFor, streamPath } from "./files/file-format.ts";
import { formatNdjson } from "./files/ndjson.ts";
import { type Period, readPeriod } from "./period.ts";
import { type CommandSystem, withStore } from "./system/system.ts";

const PAGE_SIZE = 1000;

const schemas = { users: User, orders: Order };

export interface ExportOptions extends Period {
  readonly format?: FileFormat;
  readonly output?: string;
  readonly force?: boolean;
  readonly status?: string;
}

function readStatuses(table: RecordTable, { status }: ExportOptions) {
  if (status === undefined) return () => true;
  if (table === "users") fail("usage", "--status is for orders only");
  const statuses = readWords("--status", status, orderStatuses);
  return (record: User | Order) => "status" in record && statuses.includes(record.status);
}

function failDamaged(after: number, problem: string): never {
  const message = `Cannot read the records after id ${after}: ${problem}. Run \`user-api check\``;
  return fail("operator", message);
}

type List = (query: PageQuery) => MaybePromise<Page>;

async function readPage(list: List, query: PageQuery): Promise<Page> {
  try {
    return await list(query);
  } catch (error) {
    if (!(error instanceof AppError && "limit" in (error.allowed ?? {}))) throw error;
    return list({ ...query, limit: ALWAYS_FITTING });
  }
}

/** @returns the first and the last id of the orders of a period, which a list finds without reading the others */
async function findIds({ orders }: Store, from: string, to: string): Promise<[number, number]> {
  const period = { created_from: from, created_to: to };
  async function find(sort: Sort, none: number): Promise<number> {
    const { records } = await orders.list({ limit: 1, offset: 0, sort, ...period });
    return Number(/\d+/.exec(records)?.[0] ?? none);
  }
  return [await find("id", 1), await find("-id", 0)];
}

/** PostgreSQL can take too long to find the ids of a long period. @throws any other error */
function readAll(error: unknown): undefined {
  if (!(error instanceof AppError && error.code === "unavailable")) throw error;
}

export async function* readRecords<Row extends { readonly id: number }>(
  list: List,
  [first, end] = [1, Number.MAX_SAFE_INTEGER],
): AsyncGenerator<readonly Row[]> {
  for (let after = first - 1; after < end; ) {
    const page = await readPage(list, { limit: PAGE_SIZE, offset: 0, after });
    // SQLite keeps a snapshot until the end of the turn.
    await yieldToEventLoop();
    let records: readonly Row[];
    try {
      records = JSON.parse(`[${page.records}]`);
    } catch {
      return failDamaged(after, "one has malformed JSON");
    }
    const last = records.at(-1);
    if (last === undefined) return;
    // In a damaged file, pages can refer to wrong ones: there would be no end.
    if (last.id <= after) failDamaged(after, "they are not in order");
    yield records;
    after = last.id;
  }
}

/** A server may be running. */
export async function exportTable(
  system: CommandSystem,
  table: RecordTable,
  { output: file, force = false, ...options }: ExportOptions,
): Promise<void> {
  const path = streamPath(file);
  const { start, end } = readPeriod(options);
  const isInStatus = readStatuses(table, options);
  const isCsv = formatFor(options.format, path) === "csv";
  const formatter = isCsv
    ? csvFormatter(schemas[table], path)
    : { header: "", formatRecords: formatNdjson };
  let count = 0;
  await withStore(system, { mode: "read" }, async (store) => {
    const open = (target: string) => system.openOutput(target, force, system.config.databaseUrl);
    using output = path === null ? null : open(path);
    // Not of a device or a pipe.
    const isFile = path !== null && statSync(path, { throwIfNoEntry: false })?.isFile() !== false;
    using checksum = isFile ? open(path + CHECKSUM_SUFFIX) : null;
    const hasher = new Bun.CryptoHasher("sha256");
    const write = (text: string) => {
      hasher.update(text);
      if (output === null) system.stdout(text);
      else output.write(text);
    };
    write(formatter.header);
    const hasPeriod = table === "orders" && (options.from ?? options.to) !== undefined;
    const ids = hasPeriod ? await findIds(store, start, end).catch(readAll) : undefined;
    for await (const records of readRecords<User | Order>(store[table].list, ids)) {
      const isInPeriod = ({ created_at }: User | Order) => created_at >= start && created_at < end;
      const exported = records.filter((record) => isInPeriod(record) && isInStatus(record));
      write(formatter.formatRecords(exported));
      count += exported.length;
    }
    checksum?.write(formatChecksum(hasher.digest("hex"), path ?? ""));
    output?.finish();
    checksum?.finish();
  });
  const target = path === null ? "" : ` to ${path}`;
  system.stderr(`Exported ${formatCount(count, table === "users" ? "user" : "order")}${target}\n`);
}
