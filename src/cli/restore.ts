import { formatCounts } from "../base/count-text.ts";
import { fail } from "../base/error.ts";
import { quoteReadably } from "../base/readable-text.ts";
import { readTime, readUrl } from "../domain/config.ts";
import { describeResult, describeWarnings } from "./backup.ts";
import { type CommandSystem, type JsonOption, printResult } from "./system/system.ts";

type RestoreFlags = Partial<Readonly<Record<"from" | "at", string>>>;

function readSource(system: CommandSystem, file: string | undefined, { from, at }: RestoreFlags) {
  const time = at === undefined ? null : readTime("--at", at);
  if (at !== undefined && from === undefined) fail("usage", "--at needs --from");
  if (file !== undefined && from === undefined) return file;
  if (file !== undefined || from === undefined)
    fail("usage", "Name either a backup or, with --from, an archive");
  const url = readUrl("archiveUrl", "--from", from, system.environment);
  const storage = system.openStorage(url, system.environment);
  return { storage, at: time === null ? null : new Date(time) };
}

function describeEnd(archivedUntil: Date): string {
  return `Its newest write was made at or before ${archivedUntil.toISOString()}`;
}

function openArchive(system: CommandSystem) {
  const { archiveUrl } = system.config;
  if (archiveUrl === null) fail("usage", "Name an archive with --archive-url or ARCHIVE_URL");
  return system.openStorage(archiveUrl, system.environment);
}

/** @throws {AppError} operator if there is no archive, or something of it is missing or damaged */
export async function listArchive(system: CommandSystem, { json }: JsonOption): Promise<void> {
  const ranges = await system.archive.list(openArchive(system));
  const lines = ranges.map(({ times, generations: [first, last] }) => {
    if (times === null) return "";
    const of = first === last ? `generation ${first}` : `generations ${first} to ${last}`;
    return `${times[0].toISOString()} to ${times[1].toISOString()}, ${of}\n`;
  });
  printResult(system, json, ranges, lines.join(""));
  const losses = new Set(ranges.flatMap(({ loss }) => loss ?? []));
  if (losses.size > 0) fail("operator", describeWarnings([...losses]));
}

/** @throws {AppError} operator if there is no archive, it cannot be restored, or it needs attention */
export async function checkArchive(system: CommandSystem): Promise<void> {
  const found = await system.archive.check(openArchive(system), system.config.databaseUrl);
  const { archivedUntil, warnings, ...contents } = found;
  system.stdout(`Restored ${describeResult(contents, "a temporary file")}\n`);
  system.stdout(`${describeEnd(archivedUntil)}\n`);
  if (warnings.length > 0) fail("operator", describeWarnings(warnings));
}

/** @throws {AppError} operator if there is no archive in S3, its end is damaged, or no standby is known to run */
export async function promoteArchive(system: CommandSystem, options: { force?: boolean }) {
  const storage = openArchive(system);
  if (!storage.url.startsWith("s3:"))
    fail("operator", `Cannot promote ${storage.url}: a directory is for one machine`);
  const { force = false } = options;
  const promoted = await system.archive.promote(storage, force, system.now().getTime());
  const { generation, holder, hadEnded, standby } = promoted;
  const old = hadEnded
    ? `The log of generation ${generation}, of ${holder}, had ended before`
    : `${holder} ends its writes when it sees this: with STANDBY it follows, otherwise it exits with 1`;
  system.stdout(`${old}\n${standby ?? "Any server that follows or starts"} takes over now\n`);
}

/** Tokens that the previous database has revoked stay revoked. */
export async function restoreBackup(
  system: CommandSystem,
  file: string | undefined,
  options: RestoreFlags,
): Promise<void> {
  const from = readSource(system, file, options);
  const { databaseUrl } = system.config;
  const { restore } = system.backendOf(databaseUrl);
  const restored = await restore({ from, databaseUrl, now: system.now });
  const { previous, previousPath, archivedUntil, warnings } = restored;
  const { revokedTokens, lostTokens, validTokens } = restored;
  system.stdout(`Restored ${describeResult(restored, databaseUrl)}\n`);
  if (warnings.length > 0) system.stderr(`${describeWarnings(warnings)}\n`);
  if (archivedUntil !== null) system.stdout(`${describeEnd(archivedUntil)}\n`);
  if (previousPath !== null) system.stdout(`The previous database was kept as ${previousPath}\n`);
  if (previous !== null) {
    const { users, orders, changedAt } = previous;
    const changed = changedAt === null ? "" : `, last changed at ${changedAt.toISOString()}`;
    system.stdout(`It has ${formatCounts({ user: users, order: orders })}${changed}\n`);
  }
  if (revokedTokens === null && validTokens.length > 0) {
    const since = archivedUntil === null ? "since the backup" : "since then";
    system.stdout(`No previous database could be read: tokens revoked ${since} are valid again\n`);
    system.stdout(`Valid tokens: ${quoteReadably(...validTokens)}\n`);
  }
  if (revokedTokens !== null && revokedTokens.length > 0)
    system.stdout(`Revoked as in the previous database: ${quoteReadably(...revokedTokens)}\n`);
  if (lostTokens.length > 0) {
    const lost = quoteReadably(...lostTokens);
    system.stdout(`No longer valid, because the backup is older: ${lost}\n`);
  }
}
