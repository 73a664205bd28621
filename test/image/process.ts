/** Privileges and memory of a process, from /proc. */
import { readFileSync } from "node:fs";

function statusOf(pid: number, name: string): string {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const value = new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1];
  if (value === undefined) throw new Error(`/proc/${pid}/status has no ${name}`);
  return value;
}

/** @returns the mounts that are not read-only, except those of the kernel */
function writableMounts(pid: number): string[] {
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, "utf8").trimEnd().split("\n");
  return mounts.flatMap((line) => {
    const [, , , , path = "", options = ""] = line.split(" ");
    const kept = options.split(",").includes("rw") && !/^\/(dev|proc|sys)(\/|$)/.test(path);
    return kept ? [path] : [];
  });
}

export function rightsOf(pid: number) {
  const sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
  return {
    user: Number(statusOf(pid, "Uid").split("\t")[0]),
    group: Number(statusOf(pid, "Gid").split("\t")[0]),
    /** The capabilities in any set, one bit each. */
    capabilities: sets.reduce((all, set) => all | BigInt(`0x${statusOf(pid, set)}`), 0n),
    noNewPrivileges: statusOf(pid, "NoNewPrivs") === "1",
    filteredCalls: statusOf(pid, "Seccomp") === "2",
    writable: writableMounts(pid),
  };
}

export function highestMemory(pid: number): number {
  return Number.parseInt(statusOf(pid, "VmHWM"), 10) * 1024;
}

/** @returns the resident memory that is not backed by a file, in bytes */
export function anonymousMemory(pid: number): number {
  return Number.parseInt(statusOf(pid, "RssAnon"), 10) * 1024;
}
