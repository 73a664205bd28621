// The systemd unit: its settings, and its exposure as rated by systemd.
import { describe, expect, test } from "bun:test";
import { settings } from "../../src/config.ts";

const path = `${import.meta.dir}/../../deploy/user-api.service`;
const unit = await Bun.file(path).text();

/** @returns the values of a key, in order. systemd allows most keys more than once. */
function valuesOf(key: string): string[] {
  return [...unit.matchAll(new RegExp(`^${key}=(.*)$`, "gm"))].map(([, value]) => value ?? "");
}

/** On systemd's scale from 0 (closed) to 10 (open). */
const MAX_EXPOSURE = 1.5;

describe("user-api.service", () => {
  test("TimeoutStopSec is longer than SHUTDOWN_SECONDS, to close the database", () => {
    const stopSeconds = Number(valuesOf("TimeoutStopSec").at(-1));
    expect(stopSeconds).toBeGreaterThanOrEqual(Number(settings.shutdownSeconds.default) + 5);
    expect(valuesOf("KillSignal")).toEqual(["SIGTERM"]);
  });

  test("MemoryDenyWriteExecute is not set, since it disables the JIT", () => {
    expect(valuesOf("MemoryDenyWriteExecute")).toEqual([]);
  });

  test("Environment contains only known settings", () => {
    const known = new Set<string>(Object.values(settings).map(({ variable }) => variable));
    const names = valuesOf("Environment").map((assignment) => assignment.split("=")[0] ?? "");
    expect(names.filter((name) => !known.has(name))).toEqual([]);
    expect(names).toContain("DATABASE_URL");
  });
});

const analyze = Bun.which("systemd-analyze");

function run(...args: string[]): string {
  const { stdout, stderr } = Bun.spawnSync([analyze ?? "", "--no-pager", ...args]);
  return `${stdout}${stderr}`;
}

describe.skipIf(analyze === null)(
  `systemd-analyze${analyze === null ? " (skipped: not installed)" : ""}`,
  () => {
    test("security rates the exposure of the unit as low", () => {
      const report = run("security", "--offline=true", path);
      const exposure = /Overall exposure level for .*: ([\d.]+)/.exec(report)?.[1];
      expect(Number(exposure)).toBeLessThanOrEqual(MAX_EXPOSURE);
    });

    test("verify accepts the unit, also if the binary is not installed", () => {
      const lines = run("verify", "--man=no", path).split("\n");
      const ours = lines.filter((line) => line.includes("user-api.service"));
      expect(ours.filter((line) => !line.includes("user-api is not executable"))).toEqual([]);
    });
  },
);
