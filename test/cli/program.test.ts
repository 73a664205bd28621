import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import manifest from "../../package.json" with { type: "json" };
import { flagOf, settings } from "../../src/config.ts";
import { AppError } from "../../src/error.ts";
import { openapiJson } from "../../src/http/openapi.ts";
import { makeHarness } from "./harness.ts";

for (const args of [["version"], ["--version"], ["-V"]]) {
  test(`\`${args.join(" ")}\` prints the version alone when called`, async () => {
    using world = makeHarness();
    const outcome = await world.run(...args);
    expect(outcome).toEqual({ code: 0, stdout: `${manifest.version}\n`, stderr: "" });
    expect(existsSync(world.path)).toBe(false);
  });
}

test("`openapi` prints the document that a server answers, and opens no database", async () => {
  using world = makeHarness();
  const stdout = `${openapiJson(manifest.version)}\n`;
  expect(await world.run("openapi")).toEqual({ code: 0, stdout, stderr: "" });
  expect(existsSync(world.path)).toBe(false);
});

/** The words of each command, and what its help must name. */
const helps: [string, string[]][] = [
  ["help", ["serve", "token", "health", "version"]],
  ["--help", ["serve", "token", "health", "version"]],
  ["-h", ["serve", "token", "health", "version"]],
  ["serve --help", Object.values(settings).map(({ variable }) => `--${flagOf(variable)}`)],
  ["help serve", Object.values(settings).map(({ variable }) => variable)],
  ["token --help", ["create", "list", "revoke"]],
  ["help token", ["create", "list", "revoke"]],
  ["token create --help", ["<name>", "--scope", "--expires", "--database-url", "90d"]],
  ["token help create", ["<name>", "--scope", "--expires", "--database-url"]],
  ["token list --help", ["--database-url"]],
  ["token revoke --help", ["<name>", "--database-url"]],
  ["health --help", ["--host", "--port", "--tls-cert"]],
  ["export --help", ["users", "orders", "--format", "--output", "--database-url"]],
  ["import --help", ["[file]", "stdin", "--format", "--key", "--dry-run", "--database-url"]],
  ["openapi --help", ["OpenAPI", "/api/v1/openapi.json"]],
  ["version --help", ["version"]],
];

for (const [args, named] of helps) {
  test(`\`${args}\` prints the help on stdout when called`, async () => {
    using world = makeHarness();
    const { code, stdout, stderr } = await world.run(...args.split(" "));
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toStartWith("Usage: user-api");
    for (const name of named) expect(stdout).toContain(name);
    expect(existsSync(world.path)).toBe(false);
  });
}

test("`help` tells the default of each setting when it is that of serve", async () => {
  using world = makeHarness();
  const { stdout } = await world.run("serve", "--help");
  const text = stdout.replace(/\s+/g, " ");
  for (const { variable, default: fallback } of Object.values(settings)) {
    expect(text).toContain(
      fallback === null ? `(${variable})` : `(${variable}, otherwise ${fallback})`,
    );
  }
});

const senseless: [string, RegExp][] = [
  ["", /Usage: user-api/],
  ["nope", /unknown command 'nope'/],
  ["--nope", /unknown option '--nope'/],
  ["help nope", /Usage: user-api|unknown command/],
  ["serve now", /too many arguments/],
  ["serve --nope", /unknown option '--nope'/],
  ["serve --port", /argument missing/],
  ["serve --api-token x", /unknown option '--api-token'/],
  ["token", /Usage: user-api token/],
  ["token nope", /unknown command 'nope'/],
  ["token create", /missing required argument 'name'/],
  ["token create a b", /too many arguments/],
  ["token create a --scope admin", /argument 'admin' is invalid. Allowed choices are read, write/],
  ["token create a --port 1", /unknown option '--port'/],
  ["token list a", /too many arguments/],
  ["token revoke", /missing required argument 'name'/],
  ["token revoke a b", /too many arguments/],
  ["health now", /too many arguments/],
  ["health --database-url a", /unknown option '--database-url'/],
  ["version 1", /too many arguments/],
  ["export", /missing required argument 'table'/],
  ["export tokens", /'tokens' is invalid for argument 'table'. Allowed choices are users, orders/],
  ["export users --format xml", /Allowed choices are ndjson, csv/],
  ["export users a", /too many arguments/],
  ["import users a b", /too many arguments/],
  ["import users --key", /argument missing/],
];

for (const [args, message] of senseless) {
  test(`\`user-api ${args}\` ends with 2 and says why on stderr when it makes no sense`, async () => {
    using world = makeHarness();
    const { code, stdout, stderr } = await world.run(...args.split(" ").filter(Boolean));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(message);
    expect(existsSync(world.path)).toBe(false);
  });
}

/** A command that cannot do its work, and the one line on stderr. */
const impossible: [string, string][] = [
  ["serve --port abc", "Cannot read --port: must be an integer from 0 to 65535"],
  [
    "serve --log-level loud",
    "Cannot read --log-level: must be one of debug, info, warn, error, silent",
  ],
  [
    "serve --database-url postgres://ann:hunter2@127.0.0.1:1/b",
    "Cannot open postgres://ann@127.0.0.1:1/b: nothing answers at this address",
  ],
  [
    "restore a.db --database-url postgres://a/b",
    "Cannot restore a.db: PostgreSQL has `pg_restore` for it",
  ],
  ["serve --tls-cert a.pem", "Cannot read TLS_CERT: TLS_CERT and TLS_KEY go together"],
  ["token create a --expires soon", "Cannot read --expires: must be like 30m, 12h, 90d or 52w"],
  [
    "token create a --database-url :memory:",
    "Cannot read --database-url: must be a path, e.g. data/user-api.db, or postgres://…",
  ],
  ["token list --database-url no/such.db", "Cannot open no/such.db: there is no such file"],
  ["token revoke a --database-url no/such.db", "Cannot open no/such.db: there is no such file"],
  ["health --port 65536", "Cannot read --port: must be an integer from 0 to 65535"],
];

for (const [args, line] of impossible) {
  test(`\`user-api ${args}\` ends with 1 and one line on stderr when it cannot work`, async () => {
    using world = makeHarness();
    const outcome = await world.run(...args.split(" "));
    expect(outcome).toEqual({ code: 1, stdout: "", stderr: `${line}\n` });
  });
}

test("`user-api` names the variable when the environment is wrong", async () => {
  using world = makeHarness({ environment: { PORT: "abc", API_TOKEN: "hunter2" } });
  const message = "Cannot read PORT: must be an integer from 0 to 65535\n";
  for (const command of ["serve", "health"]) {
    expect(await world.run(command)).toEqual({ code: 1, stdout: "", stderr: message });
  }
});

test("`user-api` tells a fault of its own in one line, with the stack when the level is debug", async () => {
  const openStore = () => {
    throw new TypeError("a bug");
  };
  using world = makeHarness({ openStore });
  const outcome = await world.run("token", "list");
  expect(outcome).toEqual({ code: 1, stdout: "", stderr: "Unexpected error: a bug\n" });
  using verbose = makeHarness({ openStore, environment: { LOG_LEVEL: "debug" } });
  const { code, stdout, stderr } = await verbose.run("token", "list");
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toStartWith("Unexpected error: a bug\n");
  expect(stderr).toContain("program.test.ts");
});

test("`user-api` prints one line without a prefix when the error is expected", async () => {
  const expected: [Error, string][] = [
    [new AppError("unavailable", "the database is busy"), "the database is busy\n"],
    [
      Object.assign(new Error("disk I/O error"), { code: "SQLITE_IOERR_READ" }),
      "Cannot use the database: the disk fails\n",
    ],
  ];
  for (const [error, stderr] of expected) {
    using world = makeHarness({ openStore: () => Promise.reject(error) });
    expect(await world.run("export", "users")).toEqual({ code: 1, stdout: "", stderr });
  }
});

test("`user-api` says what was thrown when it is no error at all", async () => {
  using world = makeHarness({ openStore: () => Promise.reject(null) });
  const outcome = await world.run("token", "list");
  expect(outcome).toEqual({ code: 1, stdout: "", stderr: "Unexpected error: null\n" });
});
