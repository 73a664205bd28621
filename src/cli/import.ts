import { type Config, type Flags, readConfig, shownDatabase } from "../config.ts";
import { AppError, fail, reason } from "../error.ts";
import { createOrderReader } from "../order.ts";
import type { Store } from "../store.ts";
import type { Transfer } from "../transfer.ts";
import { createUserReader } from "../user.ts";
import { readCsv } from "./csv.ts";
import { type Entry, type Format, formatFor, requireFormat, type Table } from "./format.ts";
import type { Input, Io } from "./io.ts";
import { readNdjson } from "./ndjson.ts";
import { createProgress, type Progress } from "./progress.ts";

/** Records of a transaction at most: a server beside the import waits for one with its writes. */
const BATCH_RECORDS = 5000;
/** Bytes of a transaction at most, nearly. */
const BATCH_BYTES = 4 * 2 ** 20;

/** Visible ASCII, as an idempotency key; the number of the line comes behind it. */
const KEY = /^[\x21-\x7e]{1,200}$/;

export interface Import {
  readonly table: Table;
  /** `null` for that of the file's name. */
  readonly format: Format | null;
  /** `null` for stdin. */
  readonly path: string | null;
  /** What the import is called, so that orders without ids are known when it is run again. */
  readonly key: string | null;
  readonly dry: boolean;
}

interface Tally {
  created: number;
  known: number;
  refused: number;
}

/** @throws {AppError} operator */
function requireKey(table: Table, key: string | null): void {
  if (key === null) return;
  if (table === "users") fail("operator", "Cannot use --key: users are known by their emails");
  if (!KEY.test(key)) {
    fail("operator", "Cannot read --key: must be 1 to 200 visible ASCII characters");
  }
}

/** What a refusal says of a record, without the words that are for a client. */
function problemsOf(error: unknown): string {
  if (!(error instanceof AppError) || error.code !== "invalid") throw error;
  return error.problems
    .map(({ field, problem }) => `${field === "body" ? "record" : field} ${problem}`)
    .join("; ");
}

/** Takes records until a batch is full, then hands it to the store, and tells what was refused. */
function createImporter<Given>(
  { import: importBatch }: Pick<Transfer<unknown, Given>, "import">,
  read: (entry: Entry) => Given,
  dry: boolean,
  progress: Progress,
) {
  const tally: Tally = { created: 0, known: 0, refused: 0 };
  let batch: { readonly line: number; readonly record: Given }[] = [];
  let refusals: { readonly line: number; readonly reason: string }[] = [];
  let size = 0;

  async function finish(): Promise<void> {
    const results = await importBatch(
      batch.map(({ record }) => record),
      dry,
    );
    for (const [at, result] of results.entries()) {
      tally[result.outcome] += 1;
      const line = batch[at]?.line ?? 0;
      if (result.outcome === "refused") refusals.push({ line, reason: result.reason });
    }
    refusals.sort((left, right) => left.line - right.line);
    for (const { line, reason } of refusals) progress.note(`line ${line}: ${reason}`);
    batch = [];
    refusals = [];
    size = 0;
  }

  return {
    tally,
    async take(entry: Entry): Promise<void> {
      try {
        batch.push({ line: entry.line, record: read(entry) });
      } catch (error) {
        refusals.push({ line: entry.line, reason: problemsOf(error) });
        tally.refused += 1;
      }
      size += entry.size;
      if (batch.length + refusals.length >= BATCH_RECORDS || size >= BATCH_BYTES) await finish();
    },
    finish,
  };
}

function createTableImporter(store: Store, wanted: Import, progress: Progress) {
  const { table, key, dry } = wanted;
  if (table === "users") {
    const readUser = createUserReader();
    return createImporter(store.transfer.users, (entry) => readUser(entry.read()), dry, progress);
  }
  const readOrder = createOrderReader();
  const read = (entry: Entry) =>
    readOrder(entry.read(), key === null ? null : `${key}:${entry.line}`);
  return createImporter(store.transfer.orders, read, dry, progress);
}

/** What has been read of the input is told as it is read. */
async function* watch({ chunks }: Input, progress: Progress): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of chunks) {
    yield chunk;
    bytes += chunk.length;
    progress.update(bytes);
  }
}

async function importAll(
  store: Store,
  wanted: Import,
  input: Input,
  progress: Progress,
): Promise<Tally> {
  const importer = createTableImporter(store, wanted, progress);
  const readEntries = formatFor(wanted.format, wanted.path) === "csv" ? readCsv : readNdjson;
  for await (const entries of readEntries(watch(input, progress))) {
    for (const entry of entries) await importer.take(entry);
  }
  await importer.finish();
  return importer.tally;
}

/** What stopped an import, to its operator. */
function stopped(error: unknown, { path }: Import, config: Config): unknown {
  if (!(error instanceof AppError)) return error;
  const problem =
    error.code === "unavailable"
      ? `Cannot write ${shownDatabase(config.database_url)}`
      : `Cannot read ${path ?? "the input"}`;
  const message = `${problem}: ${reason(error)}. What came before is kept: run it again to go on`;
  return new AppError("operator", message);
}

function summary({ created, known, refused }: Tally, { table, dry }: Import): string {
  const imported = dry ? `Would import ${created} ${table}` : `Imported ${created} ${table}`;
  return `${imported}; ${known} already there, ${refused} refused`;
}

/**
 * Reads users or orders and keeps them, beside a running server too.
 * @throws {AppError} operator when a record was refused, or something stopped it on the way
 */
export async function importTable(wanted: Import, flags: Flags, io: Io): Promise<void> {
  const { table, dry, path, key } = wanted;
  const config = readConfig(io.environment, flags);
  requireFormat(table, formatFor(wanted.format, path));
  requireKey(table, key);
  const input = io.openInput(path);
  const store = await io.openStore({ ...config, exclusive: false, create: !dry, now: io.now });
  let tally: Tally;
  const progress = createProgress(io, input.size);
  try {
    tally = await importAll(store, wanted, input, progress);
  } catch (error) {
    throw stopped(error, wanted, config);
  } finally {
    progress[Symbol.dispose]();
    await store.close();
  }
  const message = summary(tally, wanted);
  if (tally.refused > 0) fail("operator", message);
  io.stderr(`${message}\n`);
}
