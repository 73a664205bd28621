import { expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import manifest from "../../package.json" with { type: "json" };
import { AppError } from "../../src/base/error.ts";
import { flagOf, settings, variableOf } from "../../src/domain/settings.ts";
import { openapiJson } from "../../src/http/app.ts";
import { migrations } from "../../src/postgres/whole/migrate.ts";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { failed, makeHarness } from "./harness.ts";

const schemas = `SQLite ${SCHEMA_VERSION}, PostgreSQL ${migrations.length}`;
const version = `${manifest.version} (commit source; schemas: ${schemas})`;

test.each([
  ...["version", "--version", "-V"].map((args) => [args, version]),
  ["openapi", openapiJson(manifest.version)],
])("%s prints only what it is asked for, without a database", async (args, text) => {
  using world = makeHarness();
  expect(await world.run(args)).toEqual({ code: 0, stdout: `${text}\n`, stderr: "" });
  expect(existsSync(world.path)).toBe(false);
});

test.each([
  ...["serve", "token", "token create", "token list", "token revoke", "health", "export", "import"],
  ...["changes", "deliver", "migrate", "check", "backup", "restore", "archive", "archive check"],
  ...["copy", "person export", "openapi", "version", ""],
])("user-api %s --help prints the help and examples on stdout", async (command) => {
  using world = makeHarness();
  const words = command.split(" ").filter(Boolean);
  const { code, stdout, stderr } = await world.run(...words, "--help");
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout).toStartWith(["Usage: user-api", ...words, ""].join(" "));
  expect(stdout).toContain("\nExamples:\n  ");
  expect((await world.run("help", ...words.slice(0, 1))).stdout).toStartWith("Usage: user-api");
  expect(existsSync(world.path)).toBe(false);
});

test("serve --help names the flag, the default and the variable of each setting", async () => {
  using world = makeHarness();
  const { stdout } = await world.run("serve", "--help");
  const text = stdout.replace(/\s+/g, " ");
  for (const [name, { default: value }] of Object.entries(settings)) {
    const variable = variableOf(name);
    expect(text).toContain(flagOf(name));
    const end = value === null ? `env: ${variable})` : `(default: "${value}", env: ${variable})`;
    expect(text).toContain(end);
  }
});

const period = "--from 2026-11-01T01:00:00+01:00 --to 2026-11-01T00:00:00Z";
const from = "restore --from file:///nowhere";
const noScope = "must be one or more of read, write, ";
const noTime = "must be a time such as 2026-11-22T06:11:30Z\n";
const january = "--from 2026-01-01T00:00:00Z";
const noChange = "must be the id of a change, or 0\n";
const noBackup = "Name either a file or a directory";
const noFile = "The name of the file is empty";

const noTarget = "Invalid --to: must be https://…, or http://… on this machine, without a user\n";
const deliver = "deliver --token-file t --secret-file s --position p --from http://a.b --to";

/** Arguments, in which '' is an empty one, and how stderr begins. */
const usageErrors: [string, string | RegExp][] = [
  ["", "Usage: user-api"],
  ["nope", /^Unknown command 'nope'\n(?:\(.*\)\n)?--help lists commands and options.\n$/],
  ["--nope", "Unknown option '--nope'\n--help lists commands and options.\n"],
  ["serve --prot 1", "Unknown option '--prot'\n(Did you mean --port?)\n--help lists commands "],
  ["token create a --database-url :memory:", "Invalid --database-url: must be a path, e.g. data"],
  ["serve now", /[Tt]oo many arguments/],
  ["serve --port", /argument missing/],
  ["serve --api-token x", "Unknown option '--api-token'"],
  ["token", "Usage: user-api token"],
  ["token create", "Missing required argument 'name'"],
  ["token create a --scope admin", `Invalid --scope "admin": ${noScope}`],
  ["token create a --scope read,read", `Invalid --scope "read,read": ${noScope}`],
  ["export tokens", /'tokens' is invalid for argument 'table'. Allowed choices are users, orders/],
  ["export users --format xml", /Allowed choices are ndjson, csv/],
  ["export users --from 2026-11-01", 'Invalid --from "2026-11-01": must be a time such as 2026-'],
  [`export users ${period}`, "--from must be before --to\n"],
  ["export users --status paid", "--status is for orders only\n"],
  ["export orders --status paid,lost", 'Invalid --status "paid,lost": must be one or more of pend'],
  ["export orders --status paid,paid", 'Invalid --status "paid,paid": must be one or more of pend'],
  ["sums --to 2026-02-01T00:00:00Z", "Required option '--from <time>' not specified"],
  ["sums --from 2026-01-01 --to 2026-02-01T00:00:00Z", "Invalid --from"],
  [`sums ${january} --to 2026-01-01T00:00:00Z`, "--from must be before --to"],
  [`sums ${january} --to 2027-01-02T00:00:00.001Z`, "--to must be earlier: at most 366 intervals"],
  [`sums ${january} --to 2026-02-01T00:00:00Z --time-zone +01:00`, "--time-zone must be a name"],
  [`sums ${january} --interval week`, /'week' is invalid/],
  ["backup", noBackup],
  ["backup a.db --directory d", noBackup],
  ["backup a.db --keep 2", "--keep needs --directory"],
  ["backup --directory d --keep 0", /must be an integer from 1/],
  ["backup ''", noBackup],
  ["changes --after ''", `Invalid --after "": ${noChange}`],
  ["changes --after 1.5", `Invalid --after "1.5": ${noChange}`],
  ["changes --after 9007199254740992", `Invalid --after "9007199254740992": ${noChange}`],
  ["deliver", "Required option '--from <url>' not specified\n"],
  [`${deliver} http://a.b`, noTarget],
  [`${deliver} http://localhost@a.b`, noTarget],
  [`${deliver} http://127.0.0.1.a.b`, noTarget],
  [`${deliver} https://hidden@a.b`, noTarget],
  [
    `${deliver} https://a.b --from file:///c`,
    "Invalid --from: must be https://… or http://…, with",
  ],
  [`${deliver} https://a.b --skip -1`, `Invalid --skip "-1": ${noChange}`],
  ["copy", "Required option '--to <database>' not specified\n"],
  ["copy --to postgres://a", "Invalid --to: must be a URL such as postgres://user@"],
  ["copy --to ''", "Invalid --to: must be a path\n"],
  ["export users --output ''", noFile],
  ["import users ''", noFile],
  ["import users - --rejects ''", noFile],
  ["restore", "Name either a backup or, with --from, an archive\n"],
  [`${from} a.db`, "Name either a backup or, with --from, an archive\n"],
  ["restore a.db --at 2026-11-22T06:11:30Z", "--at needs --from\n"],
  [`${from} --at 2026-11-31T06:11:30Z`, `Invalid --at "2026-11-31T06:11:30Z": ${noTime}`],
  ["restore --from nowhere", "Invalid --from: must be s3://bucket/prefix (letters, digits and . "],
  ["archive check", "Name an archive with --archive-url or ARCHIVE_URL\n"],
];

test.each(usageErrors)("user-api %s exits with 2 and says why", async (args, message) => {
  using world = makeHarness();
  const words = args.split(" ").filter(Boolean);
  const unquote = (word: string) => (word === "''" ? "" : word);
  const { code, stdout, stderr } = await world.run(...words.map(unquote));
  expect([code, stdout]).toEqual([2, ""]);
  if (typeof message === "string") expect(stderr).toStartWith(message);
  else expect(stderr).toMatch(message);
  expect(existsSync(world.path)).toBe(false);
});

test.each([
  [
    "serve --database-url postgres://ann:hunter2@127.0.0.1:1/b",
    "Cannot open postgres://ann@127.0.0.1:1/b: connection refused, or unknown host",
  ],
  ["restore a.db --database-url postgres://a/b", "Use `pg_dump` and `pg_restore` for PostgreSQL"],
  ["restore no/such.db", "Cannot restore no/such.db: no such file"],
  ["import users no/such", "Cannot read no/such: no such file or directory"],
  ["import users /tmp", "Cannot read /tmp: it is a directory"],
  [
    "health --host no-such-host.invalid",
    "Cannot connect to http://no-such-host.invalid:0/api/v1/health: unknown host",
  ],
])("user-api %s exits with 1 and prints one line on stderr", async (args, line) => {
  using world = makeHarness();
  expect(await world.run(...args.split(" "))).toEqual(failed(line));
  expect(existsSync(world.path)).toBe(false);
});

test.each([
  ...["backup", "changes", "changes --follow", "check", "copy --to", "export users", "migrate"],
  ...["import users --dry-run", "serve --read-only", "token list", "token revoke a"],
])("user-api %s fails and creates nothing when there is no database", async (args) => {
  using world = makeHarness();
  const target = /^backup|--to$/.test(args) ? [world.at("copy.db")] : [];
  expect(await world.run(...args.split(" "), ...target)).toEqual(
    failed(
      `Cannot open ${world.path}: no such file; DATABASE_URL or --database-url selects another one`,
    ),
  );
  expect(readdirSync(world.at("."))).toEqual([]);
});

test("a command ignores the settings that it does not use, also when they are invalid", async () => {
  const environment = { PORT: "abc", TLS_CERT: "cert.pem", API_TOKEN: "hunter2", ARCHIVE_URL: "x" };
  using world = makeHarness({ environment });
  expect(await world.run("token", "create", "leaked")).toMatchObject({ code: 0 });
  expect(await world.run("export", "users")).toMatchObject({ code: 0 });
  expect(await world.run("token", "revoke", "leaked")).toMatchObject({ code: 0 });
});

for (const [what, error, line] of [
  ["a bug", new TypeError("a bug"), "Unexpected error: a bug"],
  ["no error", null, "Unexpected error: null"],
  ["expected", new AppError("unavailable", "the database is busy"), "the database is busy"],
  [
    "one of SQLite",
    Object.assign(new Error("disk I/O error"), { code: "SQLITE_IOERR_READ" }),
    "Cannot use the database: I/O error",
  ],
] as const)
  test(`user-api prints one line when what is thrown is ${what}, and the stack of a bug when LOG_LEVEL is debug`, async () => {
    const openStore = () => Promise.reject(error);
    using world = makeHarness({ openStore });
    expect(await world.run("export", "users")).toEqual(failed(line));
    using verbose = makeHarness({ openStore, environment: { LOG_LEVEL: "debug" } });
    const { stderr } = await verbose.run("token", "list");
    expect(stderr).toStartWith(`${line}\n`);
    expect(stderr.includes("program.test.ts")).toBe(what === "a bug");
  });
