/** What a server warns about when it starts: dangers that it cannot remove itself. */
import { statSync } from "node:fs";
import { dirname } from "node:path";
import { databaseFiles } from "../../base/database-url.ts";
import { fileSystemOf } from "../../base/mounts.ts";

/** Permission bits of users that are neither the owner nor in the group. The group is the choice of an operator. */
const OTHERS_READ_OR_WRITE = 0o006;
const OTHERS_WRITE = 0o002;
const OTHERS_ENTER = 0o001;

/** Types of file systems whose files other machines can have, e.g. `nfs4`, `smb3` or `fuse.sshfs`. */
const NETWORK = /^(?:nfs|cifs|smb|9p|virtiofs|fuse\.|ceph|afs|lustre|gfs|ocfs|beegfs|glusterfs)/;

/** @see https://www.sqlite.org/wal.html#walresetbug */
const WAL_RESET_BUG = "<3.44.6 || >=3.45.0 <3.50.7 || >=3.51.0 <3.51.3";

function hasPermission(path: string, bits: number): boolean {
  return ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & bits) !== 0;
}

function ancestorsOf(directory: string): string[] {
  const parent = dirname(directory);
  return parent === directory ? [directory] : [directory, ...ancestorsOf(parent)];
}

function findExposed(path: string): readonly string[] {
  const directory = dirname(path);
  const canEnter = ancestorsOf(directory).every((each) => hasPermission(each, OTHERS_ENTER));
  if (!canEnter) return [];
  const exposed = databaseFiles(path).filter((file) => hasPermission(file, OTHERS_READ_OR_WRITE));
  // Whoever can create files there can replace those of the database.
  return hasPermission(directory, OTHERS_WRITE) ? [...exposed, directory] : exposed;
}

/** @param path of an open database, without links. @param type of its file system; `null` if it is unknown */
export function findWarnings(path: string, sqliteVersion: string, type = fileSystemOf(path)) {
  const exposed = findExposed(path).join(", ");
  const warnings = [
    exposed !== "" && `every user of this machine can read or change ${exposed}: use chmod o-rwx`,
    type !== null &&
      NETWORK.test(type) &&
      `${path} is on a network file system (${type}), where locks and the write-ahead log of SQLite may fail: use a local disk`,
    Bun.semver.satisfies(sqliteVersion, WAL_RESET_BUG) &&
      `SQLite ${sqliteVersion} can damage the database in rare cases: update the operating system, which provides it, to SQLite 3.51.3 or newer`,
  ];
  return warnings.filter((warning) => warning !== false);
}
