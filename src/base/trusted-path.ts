/** Whose files are used: others could put a link to any file into a directory, or a WAL, which SQLite would apply. */
import { lstatSync, readlinkSync, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join } from "node:path";
import { suffixes } from "./database-url.ts";
import { fail } from "./error.ts";

function isTrusted(user: number, owner: number | undefined): boolean {
  return user === 0 || user === process.geteuid?.() || user === owner;
}

/** Resolves links; nothing needs to exist. @throws {AppError} operator unless a link is of root, this user or the file's owner */
export function resolveLinks(path: string): string {
  const absolute = isAbsolute(path) ? path : `${process.cwd()}/${path}`;
  const name = basename(absolute);
  if (name === "") return "/";
  const directory = resolveLinks(dirname(absolute));
  if (name === ".") return directory;
  if (name === "..") return dirname(directory);
  const own = join(directory, name);
  const link = lstatSync(own, { throwIfNoEntry: false });
  if (link?.isSymbolicLink() !== true) return own;
  if (!isTrusted(link.uid, statSync(own, { throwIfNoEntry: false })?.uid))
    fail("operator", `${own} is a link of user ${link.uid} to a file of another user`);
  const target = readlinkSync(own);
  return resolveLinks(isAbsolute(target) ? target : `${directory}/${target}`);
}

/**
 * Rejects files next to a database that another user may have put there. @param path without links; it need not exist
 * @throws {AppError} operator if one is a link, or belongs neither to this process nor to the owner of the database or,
 * without one, of the directory
 */
export function requireOwnNeighbours(path: string): void {
  const find = (file: string) => lstatSync(file, { throwIfNoEntry: false });
  const original = find(path) ?? find(dirname(path));
  // Others may not create files there, and the group may write to the database.
  const isShared = ((original?.mode ?? 0) & 0o022) === 0o020;
  for (const suffix of Object.values(suffixes)) {
    const file = path + suffix;
    const stats = find(file);
    // Of a backup, only the time is read.
    if (stats === undefined || suffix === suffixes.lastBackup) continue;
    if (stats.isSymbolicLink()) fail("operator", `${file} is a symbolic link: move it away`);
    if (isTrusted(stats.uid, original?.uid) || (isShared && stats.gid === original?.gid)) continue;
    const problem = `belongs to user ${stats.uid}, who owns neither the database nor this process`;
    fail("operator", `${file} ${problem}: move it away`);
  }
}
