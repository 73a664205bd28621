import { isPostgres } from "../base/database-url.ts";
import { AppError, fail } from "../base/error.ts";
import { quoteReadably } from "../base/readable-text.ts";
import { type Environment, readSecret } from "../base/secret.ts";
import type { Setting, SettingName } from "./settings.ts";
import { apiToken, flagOf, isSocketPath, settingNames, settings, variableOf } from "./settings.ts";
import { exactUtcOf } from "./time.ts";

export type Flags = Readonly<Partial<Record<SettingName, string>>>;

export type Config = {
  readonly [Name in SettingName]:
    | ReturnType<(typeof settings)[Name]["parse"]>
    | ((typeof settings)[Name]["default"] extends null ? null : never);
} & {
  /** Accepted in addition to the stored tokens; `null` for none. */
  readonly apiToken: string | null;
};

/** @returns e.g. `Invalid --port "abc": must be an integer from 0 to 65535` */
export function invalidValue(name: string, text: string, problem: string): string {
  return `Invalid ${name} ${quoteReadably(text)}: ${problem}`;
}

function parseValue<Value>(
  name: string,
  text: string,
  { parse, isSecret }: Pick<Setting<Value>, "parse" | "isSecret">,
): Value {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const message = isSecret
      ? `Invalid ${name}: ${error.message}`
      : invalidValue(name, text, error.message);
    return fail(name.startsWith("--") ? "usage" : "operator", message);
  }
}

/** @returns the words of a flag, in the order of those that are allowed. @throws {AppError} usage, naming the flag */
export function readWords<Word extends string>(
  flag: string,
  text: string,
  allowed: readonly Word[],
): readonly Word[] {
  const words: readonly string[] = text.split(",");
  const known = allowed.filter((word) => words.includes(word));
  if (known.length === words.length) return known;
  const problem = `must be one or more of ${allowed.join(", ")}, separated by commas`;
  return fail("usage", invalidValue(flag, text, problem));
}

/** @returns the time of a flag, in UTC with nanoseconds. @throws {AppError} usage, naming the flag */
export function readTime(flag: string, text: string): string {
  const problem = "must be a time such as 2026-11-22T06:11:30Z";
  return exactUtcOf(text) ?? fail("usage", invalidValue(flag, text, problem));
}

function withPassword(databaseUrl: string, environment: Environment): string {
  if (!isPostgres(databaseUrl)) return databaseUrl;
  const url = new URL(databaseUrl);
  if (url.password !== "" || url.searchParams.get("password")) return databaseUrl;
  const password = readSecret(environment, "PGPASSWORD");
  if (password === null) return databaseUrl;
  url.searchParams.set("password", password);
  return url.href;
}

/** Of a flag that is no setting. @throws {AppError} usage, naming the flag; operator if the password cannot be read */
export function readUrl(
  kind: "databaseUrl" | "archiveUrl",
  flag: string,
  text: string,
  environment: Environment,
): string {
  return withPassword(parseValue(flag, text, settings[kind]), environment);
}

function requireConsistent(config: Config): void {
  const { tlsCert, tlsKey, archiveUrl, archiveCommit, archiveRestore, standby } = config;
  if ((tlsCert === null) !== (tlsKey === null))
    fail("operator", "TLS_CERT and TLS_KEY must be set together");
  if (tlsCert !== null && isSocketPath(config.host))
    fail("operator", "TLS_CERT has no use if HOST is a Unix socket: unset one of them");
  if (archiveUrl !== null && isPostgres(config.databaseUrl))
    fail("operator", "ARCHIVE_URL is for a SQLite database only");
  // Who sets one of them believes that there is an archive.
  if (archiveUrl === null && (archiveCommit === "sync" || archiveRestore === "if-missing"))
    fail("operator", "ARCHIVE_COMMIT=sync and ARCHIVE_RESTORE=if-missing need ARCHIVE_URL");
  // A directory that two machines share, e.g. by NFS, does not promise that only one of them creates a file.
  if (standby && archiveUrl?.startsWith("s3:") !== true)
    fail("operator", "STANDBY needs an ARCHIVE_URL of the form s3://bucket/prefix");
  if (standby && config.readOnly) fail("operator", "STANDBY and READ_ONLY exclude each other");
}

/**
 * A flag takes precedence over the environment. An empty variable counts as not set.
 * @param used the settings that are read; the others have their default, so that a mistake in one of them does not
 * prevent, for example, that a token is revoked
 * @throws {AppError} usage if a flag is wrong, operator if a variable is
 */
export function readConfig(
  environment: Environment,
  flags: Flags = {},
  used: readonly SettingName[] = settingNames,
): Config {
  const config: Record<string, unknown> = {};
  const read = (name: string) =>
    name === "DATABASE_URL" ? readSecret(environment, name) : environment[name];
  for (const [key, setting] of Object.entries<Setting<unknown>>(settings)) {
    const flag = flags[key as SettingName];
    const isUsed = used.includes(key as SettingName);
    const text = flag ?? ((isUsed && read(variableOf(key))) || setting.default);
    const name = flag === undefined ? variableOf(key) : flagOf(key);
    config[key] = text === null ? null : parseValue(name, text, setting);
  }
  config["databaseUrl"] = withPassword(String(config["databaseUrl"]), environment);
  // Only a server has it.
  const token = used.includes("readOnly") ? readSecret(environment, "API_TOKEN") : null;
  config["apiToken"] = token === null ? null : parseValue("API_TOKEN", token, apiToken);
  requireConsistent(config as Config);
  return config as Config;
}
