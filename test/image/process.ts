/** What Linux tells of a process from outside: what it may do, and what memory it has. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const CONTROL_GROUPS = "/sys/fs/cgroup";

/** Of /proc/<pid>/status, the text after a name. */
function statusOf(pid: number, name: string): string {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const value = new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1];
  if (value === undefined) throw new Error(`/proc/${pid}/status has no ${name}`);
  return value;
}

/** Where it could write what stays, were it allowed to: the mounts without `ro`, but the kernel's own. */
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
    /** Of all sets, one bit each. */
    capabilities: sets.reduce((all, set) => all | BigInt(`0x${statusOf(pid, set)}`), 0n),
    no_new_privileges: statusOf(pid, "NoNewPrivs") === "1",
    /** By seccomp. */
    filtered_calls: statusOf(pid, "Seccomp") === "2",
    writable: writableMounts(pid),
  };
}

/** The most that was resident at once, in bytes. */
export function highestMemory(pid: number): number {
  return Number.parseInt(statusOf(pid, "VmHWM"), 10) * 1024;
}

/** What is resident now and cannot be read again from a file, in bytes. */
export function anonymousMemory(pid: number): number {
  return Number.parseInt(statusOf(pid, "RssAnon"), 10) * 1024;
}

/** Of the control group's memory, a file by its name in version 1 or in version 2. */
function memoryFile(pid: number, first: string, second: string): string {
  const groups = readFileSync(`/proc/${pid}/cgroup`, "utf8");
  const path = /^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$/m.exec(groups)?.[1];
  if (path !== undefined) return readFileSync(join(CONTROL_GROUPS, "memory", path, first), "utf8");
  const unified = /^0::(.*)$/m.exec(groups)?.[1] ?? "/";
  return readFileSync(join(CONTROL_GROUPS, unified, second), "utf8");
}

/** In bytes. */
export function memoryLimit(pid: number): number {
  return Number(memoryFile(pid, "memory.limit_in_bytes", "memory.max"));
}

/** How often the kernel has killed a process of the control group, to have memory again. */
export function outOfMemory(pid: number): number {
  const text = memoryFile(pid, "memory.oom_control", "memory.events");
  return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0);
}
