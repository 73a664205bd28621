// The systemd units: their settings, and their exposure as rated by systemd.
import { describe, expect, test } from "bun:test";
import { settings, variableOf } from "../../src/domain/settings.ts";
import { deploy } from "./yaml.ts";

const path = `${deploy}/user-api.service`;
const backupPath = `${deploy}/user-api-backup.service`;
const server = await Bun.file(path).text();
const backup = await Bun.file(backupPath).text();

/** @returns the values of a key, in order. systemd allows most keys more than once. */
function valuesOf(key: string, unit = server): string[] {
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

  test("is ordered after Litestream, which therefore stops later and copies the last writes", () => {
    expect(valuesOf("After").flatMap((units) => units.split(" "))).toContain("litestream.service");
    // Neither needs the other.
    const dependencies = ["Wants", "Requires", "BindsTo", "PartOf", "Requisite"].flatMap((key) =>
      valuesOf(key),
    );
    expect(dependencies.join(" ")).not.toContain("litestream");
  });

  test("MemoryDenyWriteExecute is not set, since it disables the JIT", () => {
    expect(valuesOf("MemoryDenyWriteExecute")).toEqual([]);
  });

  test("Environment contains only known settings", () => {
    const bun = "BUN_CONFIG_DNS_TIME_TO_LIVE_SECONDS";
    const known = new Set<string>([...Object.keys(settings).map(variableOf), bun]);
    const names = valuesOf("Environment").map((assignment) => assignment.split("=")[0] ?? "");
    expect(names.filter((name) => !known.has(name))).toEqual([]);
    expect(names).toEqual(expect.arrayContaining([bun, "DATABASE_URL"]));
  });
});

describe("user-api-backup.service", () => {
  test("backs up the database of user-api.service as its user", () => {
    expect(valuesOf("Environment", backup)).toEqual(
      valuesOf("Environment").filter((value) => value.startsWith("DATABASE_URL=")),
    );
    expect(valuesOf("EnvironmentFile", backup)).toEqual(valuesOf("EnvironmentFile"));
    expect(valuesOf("User", backup)).toEqual(["user-api"]);
    expect(valuesOf("StateDirectory", backup)[0]).toStartWith(`${valuesOf("StateDirectory")[0]} `);
  });

  test("is as isolated as user-api.service", () => {
    const hardening =
      /^(AmbientCapabilities|Capability|Lock|NoNew|Private|Proc|Protect|Restrict(N|R|S)|System)/;
    const keys = [...server.matchAll(/^(\w+)=/gm)].map(([, key]) => key ?? "");
    for (const key of keys.filter((key) => hardening.test(key))) {
      expect([key, valuesOf(key, backup)]).toEqual([key, valuesOf(key)]);
    }
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
    test.each([path, backupPath])("security rates the exposure of %s as low", (unitPath) => {
      const report = run("security", "--offline=true", unitPath);
      const exposure = /Overall exposure level for .*: ([\d.]+)/.exec(report)?.[1];
      expect(Number(exposure)).toBeLessThanOrEqual(MAX_EXPOSURE);
    });

    test.each([path, backupPath, `${deploy}/user-api-backup.timer`])(
      "verify accepts %s, also if the binary is not installed",
      (unitPath) => {
        const lines = run("verify", "--man=no", unitPath).split("\n");
        const ours = lines.filter((line) => line.includes("user-api"));
        expect(ours.filter((line) => !line.includes("user-api is not executable"))).toEqual([]);
      },
    );
  },
);
