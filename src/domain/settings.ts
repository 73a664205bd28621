import { parseDatabaseUrl } from "../base/database-url.ts";
import { fail } from "../base/error.ts";
import { logFormats, logLevels } from "../base/log.ts";
import { archiveCommits, archiveRestores } from "./archive.ts";
import { parseStorageUrl } from "./object-storage.ts";
import { hasTokenFormat } from "./token.ts";

export interface Setting<Value> {
  /** As text, as a user would write it; `null` if the setting is optional. If it is `false`, the flag has no value. */
  readonly default: string | null;
  readonly description: string;
  /** The value can contain a password, so that no message may repeat it. */
  readonly isSecret?: boolean;
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

function boolean(text: string): boolean {
  return oneOf(["true", "false"])(text) === "true";
}

export function isSocketPath(host: string): boolean {
  return host.startsWith("/");
}

function parsePath(text: string): string {
  if (text.trim() === "") fail("operator", "must be a path");
  return text;
}

function parseOrigins(text: string): readonly string[] {
  const origins = text.split(",").map((origin) => origin.trim());
  for (const origin of origins) {
    const isHttp = /^https?:/.test(origin) && URL.canParse(origin);
    if (origin === "*" || (isHttp && new URL(origin).origin === origin)) continue;
    fail("operator", "must be * or origins such as https://app.example.com, comma-separated");
  }
  return origins;
}

/** Each is a variable and a flag of `serve`. docs/configuration.md has the same table. */
export const settings = {
  databaseUrl: {
    default: "data/user-api.db",
    description: "path of the SQLite file, or postgres://…",
    isSecret: true,
    parse: parseDatabaseUrl,
  },
  host: {
    default: "127.0.0.1",
    description: "address to listen on, or the path of a Unix socket",
    parse(text): string {
      if (isSocketPath(text) ? !text.endsWith("/") : /^[\w.:%-]+$/.test(text)) return text;
      fail("operator", "must be a host name, an IP address, or the absolute path of a Unix socket");
    },
  },
  port: {
    default: "3000",
    description: "port to listen on; 0 selects a free one",
    parse: integer(0, 65_535),
  },
  readOnly: {
    default: "false",
    description: "serve reads, reject writes, and change nothing in the database",
    parse: boolean,
  },
  changesDays: {
    default: "365",
    description: "how long changes are kept, in days",
    parse: integer(1, 36_500),
  },
  archiveUrl: {
    default: null,
    description: "continuous copy of the SQLite database: s3://bucket/prefix or file:///directory",
    // A mistyped one can contain credentials.
    isSecret: true,
    parse(text): string {
      parseStorageUrl(text);
      return text;
    },
  },
  archiveSeconds: {
    default: "1",
    description: "how far the archive may be behind while the storage responds quickly, in seconds",
    parse: integer(1, 3600),
  },
  archiveCommit: {
    default: "async",
    description: "async or sync; sync acknowledges a write when the archive has it",
    parse: oneOf(archiveCommits),
  },
  archiveRestore: {
    default: "never",
    description: "never or if-missing; if-missing restores a missing database from its archive",
    parse: oneOf(archiveRestores),
  },
  archiveDays: {
    default: "7",
    description: "how far back the archive can restore, in days",
    parse: integer(1, 36_500),
  },
  standby: {
    default: "false",
    description: "follow the archive while another server writes to it, and take over from it",
    parse: boolean,
  },
  takeoverSeconds: {
    default: "10",
    description: "how long another server must have written nothing before a standby takes over",
    parse: integer(3, 300),
  },
  rateLimit: {
    default: "0",
    description: "maximum requests per second and token; 0 disables the limit",
    parse: integer(0, 1_000_000),
  },
  shutdownSeconds: {
    default: "10",
    description: "how long open requests may take to complete after SIGTERM",
    parse: integer(0, 3600),
  },
  logLevel: {
    default: "info",
    description: `${logLevels.join(", ")}; info logs every request`,
    parse: oneOf(logLevels),
  },
  logFormat: {
    default: null,
    description: "json or text; by default text on a terminal, otherwise json",
    parse: oneOf(logFormats),
  },
  logClients: {
    default: "true",
    description: "true or false; true logs the addresses of clients whose requests are rejected",
    parse: boolean,
  },
  trustedProxies: {
    default: "0",
    description: "number of proxies whose X-Forwarded-For has the address of a client",
    parse: integer(0, 100),
  },
  tlsCert: {
    default: null,
    description: "path of the certificate chain (PEM); requires the key",
    parse: parsePath,
  },
  tlsKey: {
    default: null,
    description: "path of the private key (PEM)",
    parse: parsePath,
  },
  corsOrigin: {
    default: null,
    description: "origins whose pages may call the API, comma-separated, or * for any",
    parse: parseOrigins,
  },
} as const satisfies Record<string, Setting<unknown>>;

export type SettingName = keyof typeof settings;

export const settingNames = Object.keys(settings) as SettingName[];

/** `databaseUrl` → `DATABASE_URL`. */
export function variableOf(name: string): string {
  return name.replace(/[A-Z]/g, "_$&").toUpperCase();
}

/** `databaseUrl` → `--database-url`. */
export function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, "-$&").toLowerCase()}`;
}

/** Not in {@link settings}, because it has no flag: other users see a command line. */
export const apiToken = {
  isSecret: true,
  parse(text: string): string {
    if (hasTokenFormat(text)) return text;
    fail("operator", "must be a token created by `user-api token create`");
  },
};
