/** Sums of orders, in a thread: they read all orders of a period. */
import type { Database } from "bun:sqlite";
import { AppError, fail } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { Order } from "../../domain/order.ts";
import { type IndexedSum, MAX_SUMS, SUM_MS, type SumOrders, sumsText } from "../../domain/sums.ts";
import { connect, connectAtRest, type DatabaseFile, WAL_LIMIT_BYTES } from "../file/connection.ts";
import { storageError, unavailableError } from "../file/errors.ts";
import { createThread } from "../file/thread.ts";
import { prepareTimeRanges } from "./time-runs.ts";

/** After so many orders, which take 4 ms, the thread looks whether the sum must end. */
const ORDERS_PER_TURN = 10_000;

type Task = Pick<DatabaseFile, "path" | "atRest"> & { readonly bounds: readonly string[] };
/** `null` only starts the thread. `close` ends the sum that runs, and has no reply. */
export type SumsRequest = Task | "close" | null;
/** The text of the sums, or what a message can have of an error. */
type Reply = string | Pick<AppError, "code" | "message" | "problems" | "cause">;

/** @param nextTurn rejects if the sum must end */
async function addUp(db: Database, bounds: readonly string[], nextTurn: () => Promise<void>) {
  type Row = Pick<Order, "created_at" | "currency" | "status" | "total" | "refunded">;
  const orders = db.prepare<Row, Record<"first" | "last", number> & Record<"from" | "to", string>>(`
    select created_at, currency, status, total, refunded
    from orders
    where id between $first and $last and created_at >= +$from and created_at < +$to
  `);
  const period = { from: bounds[0] ?? "", to: bounds.at(-1) ?? "" };
  const sums = new Map<string, IndexedSum>();
  let [at, count] = [0, 0];
  db.run("begin");
  for (const { first, last } of prepareTimeRanges(db)(period.from, period.to, true)) {
    // A range of which no order matches has at most the ids of a block.
    await nextTurn();
    for (const { created_at, ...order } of orders.iterate({ first, last, ...period })) {
      // Most are in the interval of the order before.
      if (created_at < (bounds[at] ?? "") || created_at >= (bounds[at + 1] ?? ""))
        at = bounds.findLastIndex((bound) => bound <= created_at);
      const { currency, status } = order;
      const none = { at, currency, status, orders: 0, total: 0, refunded: 0 };
      const sum = sums.getOrInsert(`${at} ${currency} ${status}`, none);
      sum.orders += 1;
      sum.total += order.total;
      sum.refunded += order.refunded;
      count += 1;
      if (count % ORDERS_PER_TURN === 0) await nextTurn();
      if (sums.size > MAX_SUMS) return [...sums.values()];
    }
  }
  return [...sums.values()];
}

async function read(task: Task, nextTurn: () => Promise<void>) {
  // For each sum, so that terminating the thread leaves no open connection.
  using db = task.atRest ? connectAtRest(task.path) : connect(task.path);
  try {
    return sumsText(task.bounds, await addUp(db, task.bounds, nextTurn));
  } catch (error) {
    throw storageError(error, db, "read", "orders");
  }
}

/** The thread. One sum runs after the other. */
export function createSumsService(
  respond: (reply: Reply) => void,
  nowMs = () => performance.now(),
) {
  let isClosing = false;
  let last = Promise.resolve();

  async function reply(task: Task | null): Promise<Reply> {
    const endMs = nowMs() + SUM_MS;
    async function nextTurn(): Promise<void> {
      await yieldToEventLoop();
      if (isClosing) fail("unavailable", "the store is closed");
      if (nowMs() > endMs) fail("unavailable", "the sum takes longer than 30 s");
    }
    try {
      return task === null ? "" : await read(task, nextTurn);
    } catch (error) {
      const known = error instanceof AppError ? error : unavailableError("read", error);
      const { code, message, problems, cause } = known;
      return { code, message, problems, cause };
    }
  }

  return (request: SumsRequest): void => {
    if (request === "close") isClosing = true;
    else last = last.then(async () => respond(await reply(request)));
  };
}

/** @param uncopiedPages of the write-ahead log, which are not in the database yet */
export function createSums(
  { path, atRest, requireUnchanged }: DatabaseFile,
  uncopiedPages: () => number,
) {
  // The worker is in the same directory in the source and in the binary: see `--entry-naming` in scripts/build.sh.
  const create = () => new Worker(new URL("./sums.worker.ts", import.meta.url).href);
  const open = () => createThread<SumsRequest, Reply>(create, () => true);
  let thread = open();
  let last: Promise<Reply> | null = null;

  const sumOrders: SumOrders = async (bounds) => {
    // It grows as long as a sum runs.
    if (4096 * uncopiedPages() > WAL_LIMIT_BYTES)
      fail("unavailable", "the write-ahead log is too large for sums at the moment");
    if (thread.isBroken()) thread = open();
    last = thread.ask({ path, atRest, bounds });
    const reply = await last;
    requireUnchanged();
    if (typeof reply === "string") return reply;
    throw new AppError(reply.code, reply.message, reply);
  };

  return {
    sumOrders,
    /** Call it before a server accepts connections: see `Checkpointer.prepare`. */
    start: () => thread.ask(null),
    async close(): Promise<void> {
      if (last !== null) thread.post("close");
      await last?.catch(() => {});
      thread.terminate();
    },
  };
}
