import { fail } from "../base/error.ts";
import { yieldToEventLoop } from "../base/event-loop.ts";
import { type ChangeQuery, type ChangeStore, startOf } from "../domain/change.ts";
import { invalidValue } from "../domain/config.ts";
import { formatNdjson } from "./files/ndjson.ts";
import { type CommandSystem, stopSignal, withStore } from "./system/system.ts";

const PAGE_SIZE = 200;

type ChangesOptions = { readonly after?: string; readonly follow?: boolean };

/** @throws {AppError} usage, naming the flag */
export function readChangeId(flag: string, text: string): number {
  const id = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(id)) return id;
  return fail("usage", invalidValue(flag, text, "must be the id of a change, or 0"));
}

/**
 * Beside a server with a sync archive, waits until that has all commits: a server that takes over might have other changes.
 * @param stop `null` if it fails after a while. @returns false if it was stopped. @throws {AppError} operator if the server ends
 */
async function untilArchived({ config, backendOf }: CommandSystem, stop: AbortSignal | null) {
  const { archiveCommit, databaseUrl } = config;
  const { isServed, watchArchive } = backendOf(databaseUrl);
  if (archiveCommit !== "sync" || !isServed(databaseUrl)) return true;
  const isArchived = watchArchive(databaseUrl);
  while (!(await isArchived())) {
    if (stop?.aborted) return false;
    if (stop === null || !isServed(databaseUrl))
      fail("operator", "the archive may lack the newest changes");
  }
  return true;
}

/** @param hold called before changes newer than at its last call. @param wait called after all. Each returns false to end */
async function writeChanges(
  changes: ChangeStore,
  after: number | undefined,
  write: (text: string) => void,
  hold: () => Promise<boolean>,
  wait: () => Promise<boolean>,
): Promise<void> {
  const first = { limit: PAGE_SIZE, offset: 0 };
  let held = -1;
  let query: ChangeQuery = after === undefined ? first : { ...first, after };
  for (;;) {
    const page = await changes.list(query);
    // SQLite keeps a snapshot until the end of the turn.
    await yieldToEventLoop();
    const rows = JSON.parse(`[${page.records}]`);
    const start = startOf(query, page);
    const end = Math.min(start + PAGE_SIZE, page.last);
    // The last id is a number that a damaged file can claim.
    if (rows.length < end - start)
      fail("operator", `Cannot read the changes after ${start}: run \`user-api check\``);
    if (end > held) {
      if (!(await hold())) return;
      held = page.last;
    }
    if (rows.length > 0) write(formatNdjson(rows));
    query = { ...first, after: end, feed: page.feed };
    if (end === page.last && !(await wait())) return;
  }
}

/** A server may be running. @throws {AppError} output_closed, changes_expired, changes_reset, operator */
export async function printChanges(system: CommandSystem, options: ChangesOptions): Promise<void> {
  const { after, follow } = options;
  const start = after === undefined ? undefined : readChangeId("--after", after);
  let wake = Promise.withResolvers<void>();
  let problem: string | null = null;
  function onStorageProblem(found: string | null): void {
    problem = found;
    wake.resolve();
  }
  // A database that is read at rest would not change.
  const mode = follow ? "write" : "read";
  await withStore(system, { mode, onStorageProblem }, async ({ changes }) => {
    const end = async () => false;
    if (!follow)
      return writeChanges(changes, start, system.stdout, () => untilArchived(system, null), end);
    const stop = stopSignal(system);
    const hold = () => untilArchived(system, stop);
    using _subscription = changes.subscribe(() => wake.resolve());
    stop.addEventListener("abort", () => wake.resolve());
    await writeChanges(changes, start, system.stdout, hold, async () => {
      await wake.promise;
      if (problem !== null) fail("operator", `Cannot read further changes: ${problem}`);
      wake = Promise.withResolvers<void>();
      return !stop.aborted;
    });
  });
}
