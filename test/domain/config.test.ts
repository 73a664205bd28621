import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { SQL } from "bun";
import { redactPassword } from "../../src/base/database-url.ts";
import type { Environment } from "../../src/base/secret.ts";
import { readConfig } from "../../src/domain/config.ts";
import { settings, variableOf } from "../../src/domain/settings.ts";
import { newToken } from "../../src/domain/token.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectThrown } from "../support/expect-error.ts";

const token = newToken();
const standby = { ARCHIVE_URL: "s3://bucket", STANDBY: "true" };

/** The default of each setting, the text of another value, and that value. */
const rows: Readonly<Record<string, readonly [fallback: unknown, text: string, value: unknown]>> = {
  databaseUrl: ["data/user-api.db", "/tmp/other.db", "/tmp/other.db"],
  host: ["127.0.0.1", "::1", "::1"],
  port: [3000, "65535", 65_535],
  readOnly: [false, "true", true],
  changesDays: [365, "7", 7],
  archiveUrl: [null, "s3://bucket/prefix", "s3://bucket/prefix"],
  archiveSeconds: [1, "60", 60],
  archiveCommit: ["async", "sync", "sync"],
  archiveRestore: ["never", "if-missing", "if-missing"],
  archiveDays: [7, "30", 30],
  // Excluded by READ_ONLY.
  standby: [false, "false", false],
  takeoverSeconds: [10, "3", 3],
  rateLimit: [0, "100", 100],
  shutdownSeconds: [10, "0", 0],
  logLevel: ["info", "silent", "silent"],
  logFormat: [null, "text", "text"],
  logClients: [true, "false", false],
  trustedProxies: [0, "2", 2],
  tlsCert: [null, "cert.pem", "cert.pem"],
  tlsKey: [null, "key.pem", "key.pem"],
  corsOrigin: [
    null,
    "https://a.example, http://localhost:8080",
    ["https://a.example", "http://localhost:8080"],
  ],
  apiToken: [null, token, token],
};

function each<Value>(read: (row: (typeof rows)[string]) => Value): Record<string, Value> {
  return Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, read(row)]));
}

function variables(texts: Readonly<Record<string, string>>): Environment {
  return Object.fromEntries(Object.entries(texts).map(([name, text]) => [variableOf(name), text]));
}

const defaults = each(([fallback]) => fallback);
const texts = each(([, text]) => text);
const values = each(([, , value]) => value);

test("readConfig returns the defaults when every variable is empty, or the values of all variables or flags", () => {
  expect<unknown>(readConfig({ PATH: "/bin", port: "1", "--port": "1" })).toEqual(defaults);
  expect<unknown>(readConfig(variables(each(() => "")))).toEqual(defaults);
  expect<unknown>(readConfig(variables(texts))).toEqual(values);
  const { apiToken: _, ...flags } = texts;
  expect<unknown>(readConfig({}, flags)).toEqual({ ...values, apiToken: null });
});

test("readConfig prefers the flag when the variable has another value, and rejects an empty one", () => {
  const config = readConfig({ PORT: "1", HOST: "a" }, { port: "2" });
  expect([config.port, config.host]).toEqual([2, "a"]);
  // An invalid variable is ignored if a flag replaces it.
  expect(readConfig({ PORT: "bad" }, { port: "2" }).port).toBe(2);
  for (const name of Object.keys(settings)) {
    // SQLite deletes the database of an empty path when it is closed.
    expectThrown(() => readConfig({}, { [name]: "" }), "usage", /^Invalid --/);
  }
  // Invisible characters are escaped.
  const value = String.raw`80\u{200b}8\u{a0}0 \u{e0001}\n\u{feff}`;
  const message = `Invalid PORT "${value}": must be an integer from 0 to 65535`;
  const environment = { PORT: "80\u200b8\u00a00 \u{e0001}\n\ufeff" };
  expectThrown(() => readConfig(environment), "operator", message);
});

const urlRule =
  "must be a URL such as postgres://user@localhost/user_api; " +
  "write @ : / # ? % in a password as %40 %3A %2F %23 %3F %25";
const pathRule = "must be a path, e.g. data/user-api.db or ./name, or postgres://…";
const hostRule = "must be a host name, an IP address, or the absolute path of a Unix socket";
const originRule = "must be * or origins such as https://app.example.com, comma-separated";
const range = (low: number, high: number) => `must be an integer from ${low} to ${high}`;
const sslModes = "disable, allow, prefer, require, verify-ca, verify-full";
const timeouts = ["idle_timeout", "max_lifetime", "connect_timeout"];

/** A variable, what it must be, and values that it rejects. */
const rejected: [variable: string, rule: string, ...values: string[]][] = [
  [
    ...(["DATABASE_URL", urlRule] as const),
    ..."postgres: postgres:a postgres:// postgres://a postgres://a/ postgres:/a:secret@b/c".split(
      " ",
    ),
    ..."postgres://a:b:c/d postgresql:a:secret@b/c postgres:\\\\a:secret@b\\c".split(" "),
    ...["postgres://a@b/c&password=secret", "postgres://a@b/c password=secret"],
  ],
  ...[
    ["max", "must be an integer from 1 to 1000", "x 0 -1 1001 5.0 ١"],
    ["port", "must be a port number from 1 to 65535", "http 0 65536"],
    ["prepare", "must be true or false", "no"],
    ["sslmode", `must be one of ${sslModes}`, "on VERIFY-FULL"],
    ...timeouts.map((name) => [name, "must be a number of seconds", "x -1"]),
  ].map(([name, rule, values = ""]): (typeof rejected)[number] => [
    ...(["DATABASE_URL", `the parameter ${name} ${rule}`] as const),
    ...values.split(" ").map((value) => `postgres://a/b?${name}=${value}`),
  ]),
  ["DATABASE_URL", "the parameter max is given more than once", "postgres://a/b?max=5&max=6"],
  [
    ...(["DATABASE_URL", pathRule, ":memory:", "file:a.db", "C:\\a.db"] as const),
    ..."mysql://a/b HTTP://a Postgres://a:secret@b/c postgresql+asyncpg://a:secret@b/c".split(" "),
    ..."postgres//a:secret@b/c //a:secret@b/c a:secret@b/c a:sec/ret@b/c a=b.db".split(" "),
    ...["host=b password=secret dbname=c", "PGPASSWORD=secret", "password = 'secret' user=a"],
    ...["application_name=d\tpassword=secret", "data//a.db", "localhost/app?password=secret"],
  ],
  [
    ...(["DATABASE_URL", "must not be enclosed in spaces or quotes", '"a.db"', "a.db\n"] as const),
    ...[" postgres://a:secret@b/c", "'postgres://a:secret@b/c'"],
  ],
  ["HOST", hostRule, "a b", "http://a", "a/b", "./a", "/a/", "/", "\n", "a;b"],
  ["PORT", range(0, 65_535), ..."65536 -1 +1 1.0 0x10 1e3 http ٣".split(" "), " 80", "80 "],
  ["CHANGES_DAYS", range(1, 36_500), "0", "36501", "1.5", "never"],
  ["RATE_LIMIT", range(0, 1_000_000), "-1", "0.5", "1000001", "off"],
  ["SHUTDOWN_SECONDS", range(0, 3600), "-1", "3601", "10s"],
  ["READ_ONLY", "must be one of true, false", "yes", "1", "TRUE"],
  ["LOG_LEVEL", "must be one of debug, info, warn, error, silent", "INFO", "trace", "info "],
  [
    ...(["CORS_ORIGIN", originRule, "a.example", "https://a.example/", "null"] as const),
    ..."https://a.example/b https://a.example, https://A.example https://a.example:443".split(" "),
  ],
  [
    ...(["API_TOKEN", "must be a token created by `user-api token create`", "secret"] as const),
    ...[`${newToken()}x`, newToken().toLowerCase(), `Bearer ${newToken()}`],
  ],
];

const secrets = ["DATABASE_URL", "API_TOKEN"];

function shown(variable: string, value: string): string {
  if (secrets.includes(variable)) return "";
  return ` ${JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)}`;
}

for (const [variable, rule, ...values] of rejected) {
  test(`readConfig rejects ${variable} when it breaks: ${rule}`, () => {
    const name = Object.keys(settings).find((each) => variableOf(each) === variable);
    for (const value of values) {
      const problem = `${shown(variable, value)}: ${rule}`;
      const environment = { [variable]: value };
      expectThrown(() => readConfig(environment), "operator", `Invalid ${variable}${problem}`);
      // API_TOKEN has no flag.
      if (name === undefined) continue;
      const flag = `--${variable.toLowerCase().replaceAll("_", "-")}`;
      expectThrown(() => readConfig({}, { [name]: value }), "usage", `Invalid ${flag}${problem}`);
    }
  });
}

test("readConfig reads secrets from files when the command uses them", () => {
  using directory = makeDirectory();
  const url = "postgres://a@b/c?max=5";
  const texts = { DATABASE_URL: url, API_TOKEN: token, PGPASSWORD: "a&%41 '/?#" };
  const environment: Record<string, string> = {};
  for (const [name, text] of Object.entries(texts)) {
    writeFileSync(directory.at(name), `${text}\n`);
    environment[`${name}_FILE`] = directory.at(name);
  }
  const { databaseUrl, apiToken } = readConfig(environment);
  expect([apiToken, redactPassword(databaseUrl)]).toEqual([token, "postgres://a@b/c"]);
  const { password, max } = new SQL(databaseUrl).options;
  expect([password, max]).toEqual([texts.PGPASSWORD, 5]);
  const missing = { DATABASE_URL_FILE: "none", API_TOKEN_FILE: "none", PGPASSWORD_FILE: "none" };
  for (const databaseUrl of ["a.db", "postgres://a:d@b/c", "postgres://a@b/c?password=d"])
    expect(readConfig(missing, { databaseUrl }, ["databaseUrl"]).databaseUrl).toBe(databaseUrl);
  expectThrown(() => readConfig(missing, {}, ["databaseUrl"]), "operator", /DATABASE_URL_FILE/);
  expectThrown(() => readConfig(missing, { databaseUrl: url }), "operator", /PGPASSWORD_FILE/);
  expectThrown(() => readConfig(missing, { databaseUrl: "a.db" }), "operator", /API_TOKEN_FILE/);
});

test("readConfig accepts a value when it is at a bound, and settings that have what they need", () => {
  const accepted: [Environment, Partial<ReturnType<typeof readConfig>>][] = [
    [{ PORT: "0" }, { port: 0 }],
    [{ RATE_LIMIT: "1000000" }, { rateLimit: 1_000_000 }],
    [{ SHUTDOWN_SECONDS: "3600" }, { shutdownSeconds: 3600 }],
    [{ HOST: "fe80::1%eth0" }, { host: "fe80::1%eth0" }],
    [{ CORS_ORIGIN: "*" }, { corsOrigin: ["*"] }],
    [standby, { standby: true }],
    [{ ARCHIVE_COMMIT: "sync", ARCHIVE_URL: "s3://bucket/prefix" }, { archiveCommit: "sync" }],
    [{ ARCHIVE_COMMIT: "async" }, { archiveUrl: null }],
    ...[
      ...["postgres://a:b@c:1/d?max=5", "postgres://a@b/c=d%20e", "postgresql:///a?host=/b"],
      ...["./a b.db", "data/a=b.db", "./a=b.db", "./data//a.db", "data/ann@example.com.db"],
      ...["data/2026-11-22T06:11.db", "postgres/a.db", "../a:b@c.db", "/srv/a:b@c/host=d.db"],
    ].map((url): (typeof accepted)[number] => [{ DATABASE_URL: url }, { databaseUrl: url }]),
  ];
  for (const [variables, expected] of accepted)
    expect(readConfig(variables)).toMatchObject(expected);
  expect(readConfig({ TLS_KEY: "a" }, { tlsCert: "b" })).toMatchObject({ tlsKey: "a" });
});

test("redactPassword removes the password when it is in a URL", () => {
  expect(redactPassword("data/a.db")).toBe("data/a.db");
  const url = "postgres://ann:hunter2@db.example:1/a?password=hunter2&sslmode=require";
  expect(redactPassword(url)).toBe("postgres://ann@db.example:1/a");
  expect(redactPassword("postgresql:///a?host=/run/postgresql")).toBe("postgresql:///a");
});

const ofTls = "TLS_CERT and TLS_KEY must be set together";
const ofArchive = "ARCHIVE_COMMIT=sync and ARCHIVE_RESTORE=if-missing need ARCHIVE_URL";
const ofStandby = "STANDBY needs an ARCHIVE_URL of the form s3://bucket/prefix";

test.each<[Environment, Record<string, string>, string | RegExp]>([
  [{ TLS_CERT: "a" }, {}, ofTls],
  [{ TLS_KEY: "a", TLS_CERT: "" }, {}, ofTls],
  [{}, { tlsKey: "a" }, ofTls],
  [{ TLS_KEY: "a", TLS_CERT: "b", HOST: "/run/socket" }, {}, /HOST is a Unix socket/],
  [{ ARCHIVE_COMMIT: "sync" }, {}, ofArchive],
  [{ ARCHIVE_RESTORE: "if-missing", ARCHIVE_URL: "" }, {}, ofArchive],
  [{}, { archiveCommit: "sync" }, ofArchive],
  [{ STANDBY: "true" }, {}, ofStandby],
  [{ ...standby, ARCHIVE_URL: "file:///archive" }, {}, ofStandby],
  [{ ...standby, READ_ONLY: "true" }, {}, "STANDBY and READ_ONLY exclude each other"],
])("readConfig rejects the combination of %j and %j", (environment, flags, message) => {
  expectThrown(() => readConfig(environment, flags), "operator", message);
});
