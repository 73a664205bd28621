import { readFileSync } from "node:fs";

/** @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
export function parseMounts(mountinfo: string) {
  return mountinfo.split("\n").flatMap((line) => {
    const [, path, type] = /^(?:\S+ ){4}(\S+) .*? - (\S+) /.exec(line) ?? [];
    if (path === undefined || type === undefined) return [];
    const decode = (_: string, octal: string) => String.fromCharCode(Number.parseInt(octal, 8));
    return [{ path: path.replaceAll(/\\([0-7]{3})/g, decode), type }];
  });
}

function readMounts() {
  try {
    return parseMounts(readFileSync("/proc/self/mountinfo", "utf8"));
  } catch {
    return [];
  }
}

/** @param path without links */
export function isMountPoint(path: string, mounts = readMounts()): boolean {
  return mounts.some((mount) => mount.path === path);
}

/** @param path without links. @returns the type of its file system, e.g. `nfs4` or `fuse.sshfs`; `null` if it is unknown */
export function fileSystemOf(path: string, mounts = readMounts()): string | null {
  const above = mounts.filter((mount) => `${path}/`.startsWith(mount.path.replace(/\/?$/, "/")));
  // The last of several mounts at one path is the visible one.
  return above.sort((one, other) => one.path.length - other.path.length).at(-1)?.type ?? null;
}
