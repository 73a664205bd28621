import { expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import manifest from "../../package.json" with { type: "json" };
import { AppError } from "../../src/base/error.ts";
import { flagOf, settings, variableOf } from "../../src/domain/settings.ts";
import { openapiJson } from "../../src/http/app.ts";
import { migrations } from "../../src/postgres/whole/migrate.ts";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { failed, makeHarness } from "./harness.ts";

for (const args of [["version"], ["--version"], ["-V"]]) {
  test(`${args.join(" ")} prints only the version, the commit and the schemas`, async () => {
    using world = makeHarness();
    const outcome = await world.run(...args);
    const schemas = `SQLite ${SCHEMA_VERSION}, PostgreSQL ${migrations.length}`;
    const stdout = `${manifest.version} (commit source; schemas: ${schemas})\n`;
    expect(outcome).toEqual({ code: 0, stdout, stderr: "" });
    expect(existsSync(world.path)).toBe(false);
  });
}

test("openapi prints the document that a server returns, without opening a database", async () => {
  using world = makeHarness();
  const stdout = `${openapiJson(manifest.version)}\n`;
  expect(await world.run("openapi")).toEqual({ code: 0, stdout, stderr: "" });
  expect(existsSync(world.path)).toBe(false);
});

const helps: [string, string[]][] = [
  ["help", ["serve", "token", "health", "version"]],
  ["serve --help", Object.keys(settings).map(flagOf)],
  ["help serve", Object.keys(settings).map(variableOf)],
  ["token --help", ["create", "list", "revoke"]],
  ["token create --help", ["<name>", "--scope", "--expires", "--database-url", "90d"]],
  ["token list --help", ["--database-url"]],
  ["token revoke --help", ["<name>", "--database-url"]],
  ["health --help", ["--host", "--port", "--tls-cert"]],
  [
    "export --help",
    ["users", "orders", "--format", "--output", "--from", "--to", "--database-url"],
  ],
  ["import --help", ["[file]", "stdin", "--format", "--update", "--dry-run", "--database-url"]],
  ["changes --help", ["--after", "--follow", "--database-url"]],
  ["migrate --help", ["--database-url"]],
  ["check --help", ["--database-url"]],
  ["backup --help", ["[file]", "--directory", "--keep", "--database-url"]],
  ["restore --help", ["[file]", "--from", "--at", "--database-url"]],
  ["archive --help", ["check"]],
  ["archive check --help", ["--archive-url", "--database-url"]],
  ["copy --help", ["--to", "--database-url"]],
  ["openapi --help", ["OpenAPI", "/api/v1/openapi.json"]],
  ["version --help", ["version"]],
];

for (const [args, named] of helps) {
  test(`${args} prints the help on stdout`, async () => {
    using world = makeHarness();
    const { code, stdout, stderr } = await world.run(...args.split(" "));
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toStartWith("Usage: user-api");
    for (const name of named) expect(stdout).toContain(name);
    expect(stdout).toContain("\nExamples:\n  ");
    expect(existsSync(world.path)).toBe(false);
  });
}

test("serve --help names the default and the variable of each setting", async () => {
  using world = makeHarness();
  const { stdout } = await world.run("serve", "--help");
  const text = stdout.replace(/\s+/g, " ");
  for (const [name, { default: value }] of Object.entries(settings)) {
    const variable = variableOf(name);
    const end = value === null ? `env: ${variable})` : `(default: "${value}", env: ${variable})`;
    expect(text).toContain(end);
  }
});

const usageErrors: [string, RegExp][] = [
  ["", /Usage: user-api/],
  ["nope", /^Unknown command 'nope'\n(?:\(.*\)\n)?--help lists commands and options.\n$/],
  ["--nope", /^Unknown option '--nope'\n--help lists commands and options.\n$/],
  [
    "serve --prot 1",
    /^Unknown option '--prot'\n\(Did you mean --port\?\)\n--help lists commands and options.\n$/,
  ],
  ["token create a --database-url :memory:", /^Invalid --database-url: must be a path, e.g. data/],
  ["serve now", /[Tt]oo many arguments/],
  ["serve --port", /argument missing/],
  ["serve --api-token x", /[Uu]nknown option '--api-token'/],
  ["token", /Usage: user-api token/],
  ["token create", /[Mm]issing required argument 'name'/],
  [
    "token create a --scope admin",
    /^Invalid --scope "admin": must be one or more of read, write, /,
  ],
  ["token create a --scope read,read", /^Invalid --scope "read,read": must be one or more of /],
  ["export tokens", /'tokens' is invalid for argument 'table'. Allowed choices are users, orders/],
  ["export users --format xml", /Allowed choices are ndjson, csv/],
  ["export users --from 2026-11-01", /^Invalid --from "2026-11-01": must be a time such as 2026-/],
  [
    "export users --from 2026-11-01T01:00:00+01:00 --to 2026-11-01T00:00:00Z",
    /^--from must be before --to\n$/,
  ],
  ["backup", /Name either a file or a directory/],
  ["backup a.db --directory d", /Name either a file or a directory/],
  ["backup a.db --keep 2", /--keep needs --directory/],
  ["backup --directory d --keep 0", /must be an integer from 1/],
  ["backup ''", /Name either a file or a directory/],
  ["export users --output ''", /The name of the file is empty/],
  ["import users ''", /The name of the file is empty/],
  ["import users - --rejects ''", /The name of the file is empty/],
];

for (const [args, message] of usageErrors) {
  test(`user-api ${args} exits with 2 and explains it on stderr when it is a usage error`, async () => {
    using world = makeHarness();
    const { code, stdout, stderr } = await world.run(
      ...args
        .split(" ")
        .filter(Boolean)
        .map((word) => (word === "''" ? "" : word)),
    );
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(message);
    expect(existsSync(world.path)).toBe(false);
  });
}

const failures: [string, string][] = [
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
];

for (const [args, line] of failures) {
  test(`user-api ${args} exits with 1 and prints one line on stderr when it fails`, async () => {
    using world = makeHarness();
    const outcome = await world.run(...args.split(" "));
    expect(outcome).toEqual(failed(line));
    expect(existsSync(world.path)).toBe(false);
  });
}

test.each([
  "backup",
  "changes",
  "changes --follow",
  "check",
  "copy --to",
  "export users",
  "migrate",
  "serve --read-only",
  "token list",
  "token revoke a",
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

test("user-api exits with 1 and names the variable when the environment is invalid", async () => {
  using world = makeHarness({ environment: { PORT: "abc", API_TOKEN: "hunter2" } });
  const message = 'Invalid PORT "abc": must be an integer from 0 to 65535';
  for (const command of ["serve", "health"]) {
    expect(await world.run(command)).toEqual(failed(message));
  }
});

test("a command ignores the settings that it does not use, also when they are invalid", async () => {
  const environment = { PORT: "abc", TLS_CERT: "cert.pem", API_TOKEN: "hunter2", ARCHIVE_URL: "x" };
  using world = makeHarness({ environment });
  expect(await world.run("token", "create", "leaked")).toMatchObject({ code: 0 });
  expect(await world.run("export", "users")).toMatchObject({ code: 0 });
  expect(await world.run("token", "revoke", "leaked")).toMatchObject({ code: 0 });
});

test("user-api prints one line for a bug, with the stack when LOG_LEVEL is debug", async () => {
  const openStore = () => {
    throw new TypeError("a bug");
  };
  using world = makeHarness({ openStore });
  const outcome = await world.run("token", "list");
  expect(outcome).toEqual(failed("Unexpected error: a bug"));
  using verbose = makeHarness({ openStore, environment: { LOG_LEVEL: "debug" } });
  const { code, stdout, stderr } = await verbose.run("token", "list");
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toStartWith("Unexpected error: a bug\n");
  expect(stderr).toContain("program.test.ts");
});

test("user-api prints one line without a prefix when the error is expected", async () => {
  const expected: [Error, string][] = [
    [new AppError("unavailable", "the database is busy"), "the database is busy"],
    [
      Object.assign(new Error("disk I/O error"), { code: "SQLITE_IOERR_READ" }),
      "Cannot use the database: I/O error",
    ],
  ];
  for (const [error, line] of expected) {
    using world = makeHarness({ openStore: () => Promise.reject(error) });
    expect(await world.run("export", "users")).toEqual(failed(line));
  }
});

test("user-api prints the thrown value when it is not an error", async () => {
  using world = makeHarness({ openStore: () => Promise.reject(null) });
  const outcome = await world.run("token", "list");
  expect(outcome).toEqual(failed("Unexpected error: null"));
});
