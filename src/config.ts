/** The only reader of the environment: variables and flags in, one frozen `Config` out. */
import { AppError, fail } from "./error.ts";
import { type LogFormat, type LogLevel, log_formats, log_levels } from "./log.ts";
import { type PostgresLayout, postgres_layouts } from "./store.ts";
import { hasTokenFormat } from "./token.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

interface Setting<Value> {
  /** The variable; the flag is the same in kebab case. */
  readonly variable: string;
  /** As text, as a user would write it; `null` when it may be absent. */
  readonly default: string | null;
  readonly description: string;
  /** @throws {AppError} operator, saying what the value must be */
  readonly parse: (text: string) => Value;
}

function integer(low: number, high: number) {
  return (text: string): number => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= low && value <= high) return value;
    fail("operator", `must be an integer from ${low} to ${high}`);
  };
}

function oneOf<const Value extends string>(values: readonly Value[]) {
  return (text: string): Value => {
    const value = values.find((candidate) => candidate === text);
    if (value === undefined) fail("operator", `must be one of ${values.join(", ")}`);
    return value;
  };
}

function matching(pattern: RegExp, expected: string) {
  return (text: string): string => {
    if (pattern.test(text)) return text;
    fail("operator", `must be ${expected}`);
  };
}

function parsePath(text: string): string {
  // SQLite takes an empty path for a temporary database, which is gone at the end.
  if (text.trim() === "") fail("operator", "must be a path");
  return text;
}

/** Whether it is the URL of a PostgreSQL database, and not the path of a SQLite file. */
export function isPostgres(database_url: string): boolean {
  return /^postgres(ql)?:/.test(database_url);
}

/** @returns where a database is, without the password */
export function redactPassword(database_url: string): string {
  if (!isPostgres(database_url)) return database_url;
  const { protocol, username, host, pathname } = new URL(database_url);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}

function parseDatabaseUrl(text: string): string {
  // A URL that is a little wrong must not become a path: it would name a file after a password.
  if (/^[\s"'`]|[\s"'`]$/.test(text)) fail("operator", "must have no spaces or quotes around it");
  if (isPostgres(text)) {
    // Without a name it would be the database that is named after the user.
    const url = text.includes("://") ? URL.parse(text) : null;
    if (url !== null && (url.pathname.length > 1 || url.searchParams.has("dbname"))) return text;
    const advice = "write @ : / # ? % in a password as %40 %3A %2F %23 %3F %25";
    fail("operator", `must be a URL such as postgres://user@localhost/user_api; ${advice}`);
  }
  if (/^:memory:|^[a-z]{2,}:|:\/\//i.test(text))
    fail("operator", "must be a path, e.g. data/user-api.db, or postgres://…");
  return parsePath(text);
}

function parseOrigins(text: string): readonly string[] {
  const origins = text.split(",").map((origin) => origin.trim());
  for (const origin of origins) {
    const is_http = /^https?:/.test(origin) && URL.canParse(origin);
    if (origin === "*" || (is_http && new URL(origin).origin === origin)) continue;
    fail("operator", "must be * or origins such as https://app.example.com, comma-separated");
  }
  return origins;
}

function parseApiToken(text: string): string {
  if (hasTokenFormat(text)) return text;
  fail("operator", "must be a token as made by `user-api token create`");
}

/** Each is a variable and a flag of `serve`; the README has the same table. */
export const settings = {
  database_url: {
    variable: "DATABASE_URL",
    default: "data/user-api.db",
    description: "path of the SQLite file, or postgres://…",
    parse: parseDatabaseUrl,
  },
  postgres_layout: {
    variable: "POSTGRES_LAYOUT",
    default: "plain",
    description: "plain, or citus to distribute the orders",
    parse: oneOf(postgres_layouts) satisfies (text: string) => PostgresLayout,
  },
  host: {
    variable: "HOST",
    default: "127.0.0.1",
    description: "address to listen on",
    parse: matching(/^[\w.:%-]+$/, "a host name or an IP address"),
  },
  port: {
    variable: "PORT",
    default: "3000",
    description: "port to listen on; 0 takes a free one",
    parse: integer(0, 65_535),
  },
  max_body_bytes: {
    variable: "MAX_BODY_BYTES",
    default: "65536",
    description: "largest request body, else 413",
    parse: integer(1, 67_108_864),
  },
  max_pending_writes: {
    variable: "MAX_PENDING_WRITES",
    default: "4096",
    description: "writes waiting for the disk, else 503",
    parse: integer(1, 1_000_000),
  },
  max_unsent_bytes: {
    variable: "MAX_UNSENT_BYTES",
    default: "33554432",
    description: "bytes of large pages that are not sent yet, else 503",
    parse: integer(0, 1_099_511_627_776),
  },
  rate_limit: {
    variable: "RATE_LIMIT",
    default: "0",
    description: "requests per second per token, else 429; 0 is off",
    parse: integer(0, 1_000_000),
  },
  shutdown_seconds: {
    variable: "SHUTDOWN_SECONDS",
    default: "10",
    description: "how long SIGTERM waits for work in flight",
    parse: integer(0, 3600),
  },
  log_level: {
    variable: "LOG_LEVEL",
    default: "info",
    description: `one of ${log_levels.join(", ")}; info has one line a request`,
    parse: oneOf(log_levels) satisfies (text: string) => LogLevel,
  },
  log_format: {
    variable: "LOG_FORMAT",
    default: null,
    description: `one of ${log_formats.join(", ")}; text on a terminal, else json`,
    parse: oneOf(log_formats) satisfies (text: string) => LogFormat,
  },
  tls_cert: {
    variable: "TLS_CERT",
    default: null,
    description: "path of the certificate chain (PEM); with TLS_KEY",
    parse: parsePath,
  },
  tls_key: {
    variable: "TLS_KEY",
    default: null,
    description: "path of its private key (PEM)",
    parse: parsePath,
  },
  cors_origin: {
    variable: "CORS_ORIGIN",
    default: null,
    description: "origins whose pages may call, comma-separated, or * for any",
    parse: parseOrigins,
  },
} as const satisfies Record<string, Setting<unknown>>;

export type SettingName = keyof typeof settings;
export type Flags = Readonly<Partial<Record<SettingName, string>>>;

type Parsed<Name extends SettingName> = ReturnType<(typeof settings)[Name]["parse"]>;
export type Config = {
  readonly [Name in SettingName]:
    | Parsed<Name>
    | ((typeof settings)[Name]["default"] extends null ? null : never);
} & {
  /** Accepted beside the stored tokens; `null` for none. No flag: a command line is no place for it. */
  readonly api_token: string | null;
};

/** `DATABASE_URL` → `database-url`, as the command line has it. */
export function flagOf(variable: string): string {
  return variable.toLowerCase().replaceAll("_", "-");
}

/** @throws {AppError} operator, when the value is not what it must be */
function parseValue<Value>(name: string, text: string, parser: (text: string) => Value): Value {
  try {
    return parser(text);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return fail("operator", `Cannot read ${name}: ${error.message}`);
  }
}

/**
 * Reads where a database is, of a flag that is no setting.
 * @throws {AppError} operator, naming the flag
 */
export function readDatabaseUrl(flag: string, text: string): string {
  return parseValue(flag, text, parseDatabaseUrl);
}

/**
 * A flag wins over the environment; an empty variable counts as not set.
 * @throws {AppError} operator, naming the setting that is wrong
 */
export function readConfig(environment: Environment, flags: Flags = {}): Config {
  const config: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(settings)) {
    const flag = flags[name as SettingName];
    const text = flag ?? (environment[setting.variable] || setting.default);
    const source = flag === undefined ? setting.variable : `--${flagOf(setting.variable)}`;
    config[name] = text === null ? null : parseValue<unknown>(source, text, setting.parse);
  }
  const token = environment["API_TOKEN"] || null;
  config["api_token"] = token === null ? null : parseValue("API_TOKEN", token, parseApiToken);
  if ((config["tls_cert"] === null) !== (config["tls_key"] === null)) {
    fail("operator", "Cannot read TLS_CERT: TLS_CERT and TLS_KEY go together");
  }
  return Object.freeze(config) as Config;
}
