import { Argument, Command, CommanderError, Option } from "commander";
import { version } from "../../package.json" with { type: "json" };
import { type Flags, flagOf, type SettingName, settings } from "../config.ts";
import { postgres_layouts } from "../database-url.ts";
import { AppError, messageOf } from "../error.ts";
import { token_scopes } from "../token.ts";
import { backUpStore, restoreBackup } from "./backup.ts";
import { checkStore } from "./check.ts";
import { copyStore } from "./copy.ts";
import { exportTable } from "./export.ts";
import { bulk_tables, file_formats } from "./file-format.ts";
import { checkHealth } from "./health.ts";
import { importTable } from "./import.ts";
import { printDocument } from "./openapi.ts";
import { seedStore } from "./seed.ts";
import { serve } from "./serve.ts";
import type { System } from "./system.ts";
import { createToken, listTokens, revokeToken } from "./token.ts";

const USAGE_EXIT_CODE = 2;

type Descriptions = Partial<Record<SettingName, string>>;

/** What the settings of a server mean to a client on the same machine. */
const health_settings = {
  host: "address of the server to check",
  port: "port of the server to check",
  tls_cert: "certificate of the server; if set, the check uses HTTPS",
  tls_key: "private key of the server; requires the certificate",
} as const satisfies Descriptions;

/** Needed by every command that opens the database. */
const database_settings = ["database_url"] as const satisfies SettingName[];

/** @returns e.g. `(default: "127.0.0.1", env: HOST)`, in the style of commander */
function describeSources(name: SettingName): string {
  const setting = settings[name];
  const { variable, default: default_value } = setting;
  const note = "default_note" in setting ? setting.default_note : null;
  const shown = default_value === null ? note : JSON.stringify(default_value);
  return shown === null ? `(env: ${variable})` : `(default: ${shown}, env: ${variable})`;
}

/** @param descriptions for settings that mean something else to this command */
function addSettings(
  command: Command,
  names: readonly SettingName[],
  descriptions: Descriptions = {},
): Command {
  for (const name of names) {
    const { variable, placeholder, description } = settings[name];
    const text = `${descriptions[name] ?? description} ${describeSources(name)}`;
    command.addOption(new Option(`--${flagOf(variable)} <${placeholder}>`, text));
  }
  return command;
}

function addExamples(command: Command, ...lines: readonly string[]): Command {
  return command.addHelpText(
    "after",
    `\nExamples:\n${lines.map((line) => `  ${line}\n`).join("")}`,
  );
}

/** Translates option names, which commander writes in camel case, to names of settings. */
function flagsOf(command: Command): Flags {
  const flags: Partial<Record<SettingName, string>> = {};
  for (const option of command.options) {
    const name = option.name().replaceAll("-", "_");
    const value: unknown = command.getOptionValue(option.attributeName());
    if (Object.hasOwn(settings, name) && typeof value === "string") {
      flags[name as SettingName] = value;
    }
  }
  return flags;
}

/** `-` stands for a standard stream, which has no path. */
function streamPath(file: string): string | null {
  return file === "-" ? null : file;
}

function addServe(program: Command, system: System): void {
  const command = program
    .command("serve")
    .description("serve the API until SIGTERM or SIGINT (Ctrl-C)");
  addSettings(command, Object.keys(settings) as SettingName[]);
  addExamples(
    command,
    "user-api serve",
    "user-api serve --port 8080 --database-url /var/lib/user-api/user-api.db",
    "LOG_LEVEL=warn user-api serve",
  );
  command.action(() => serve(version, flagsOf(command), system));
}

function addToken(program: Command, system: System): void {
  const token = program.command("token").description("create, list and revoke access tokens");
  addExamples(token, "user-api token create laptop", "user-api token list");

  const create = token
    .command("create")
    .description("create a token and print it; it is shown only once")
    .addArgument(new Argument("<name>", "name of the token, e.g. that of its client"))
    .addOption(
      new Option("--scope <scope>", "permitted requests").choices(token_scopes).default("write"),
    )
    .option("--expires <duration>", "lifetime, e.g. 30m, 12h, 90d or 52w (default: unlimited)");
  addSettings(create, database_settings);
  addExamples(
    create,
    "user-api token create laptop",
    "user-api token create dashboard --scope read --expires 90d",
    "TOKEN=$(user-api token create ci)",
  );
  create.action((name, { scope, expires = null }) =>
    createToken({ name, scope, expires }, flagsOf(create), system),
  );

  const list = token.command("list").description("list tokens (without their secrets)");
  addSettings(list, database_settings);
  addExamples(list, "user-api token list");
  list.action(() => listTokens(flagsOf(list), system));

  const revoke = token
    .command("revoke")
    .description("revoke a token")
    .argument("<name>", "name of the token");
  addSettings(revoke, database_settings);
  addExamples(revoke, "user-api token revoke laptop");
  revoke.action((name) => revokeToken(name, flagsOf(revoke), system));
}

function addImportAndExport(program: Command, system: System): void {
  const table = () => new Argument("<table>", "records to transfer").choices(bulk_tables);
  const format = () =>
    new Option(
      "--format <format>",
      "file format (default: by file extension, otherwise ndjson)",
    ).choices(file_formats);

  const export_command = program
    .command("export")
    .description("write all users or orders to a file or to stdout")
    .addArgument(table())
    .addOption(format())
    .option("--output <file>", "target file (default: stdout)")
    .option("--force", "overwrite the target file if it exists");
  addSettings(export_command, database_settings);
  addExamples(
    export_command,
    "user-api export users --output users.csv",
    "user-api export orders | gzip >orders.ndjson.gz",
  );
  export_command.action((table, { format = null, output = "-", force = false }) =>
    exportTable(
      { table, format, path: streamPath(output), force },
      flagsOf(export_command),
      system,
    ),
  );

  const import_command = program
    .command("import")
    .description("read users or orders from a file or from stdin; safe to repeat")
    .addArgument(table())
    .argument("[file]", "source file (default: stdin)")
    .addOption(format())
    .option("--key <name>", "name of the import, required for orders without ids")
    .option("--dry-run", "validate the input without writing anything");
  addSettings(import_command, database_settings);
  addExamples(
    import_command,
    "user-api import users users.csv --dry-run",
    "user-api import orders orders.ndjson --key 2026-11-shop",
    "zcat users.ndjson.gz | user-api import users",
  );
  import_command.action(
    (table, file = "-", { format = null, key = null, dryRun: dry_run = false }) =>
      importTable(
        { table, format, path: streamPath(file), key, dry_run },
        flagsOf(import_command),
        system,
      ),
  );
}

function addSeed(program: Command, system: System): void {
  const command = program
    .command("seed")
    .description("fill an empty database with demo users and orders")
    .addOption(new Option("--users <number>", "number of users").default("100"))
    .addOption(new Option("--orders <number>", "number of orders").default("500"));
  addSettings(command, database_settings);
  addExamples(command, "user-api seed", "user-api seed --users 1000 --orders 100000");
  command.action(({ users, orders }) => seedStore({ users, orders }, flagsOf(command), system));
}

function addMaintenance(program: Command, system: System): void {
  const check = program
    .command("check")
    .description("verify a database; exits with 1 if problems are found");
  addSettings(check, database_settings);
  addExamples(check, "user-api check", "user-api check --database-url backup.db");
  check.action(() => checkStore(flagsOf(check), system));

  const backup = program
    .command("backup")
    .description("copy a SQLite database to a new file and verify the copy")
    .argument("<file>", "target file; must not exist");
  addSettings(backup, database_settings);
  addExamples(backup, "user-api backup backup.db");
  backup.action((file) => backUpStore(file, flagsOf(backup), system));

  const restore = program
    .command("restore")
    .description("restore a backup; the current database is kept next to it")
    .argument("<file>", "file made by backup");
  addSettings(restore, database_settings);
  addExamples(restore, "user-api restore backup.db");
  restore.action((file) => restoreBackup(file, flagsOf(restore), system));

  const copy = program
    .command("copy")
    .description("copy a database into an empty one, e.g. from SQLite to PostgreSQL")
    .requiredOption("--to <database>", "target: a path, or postgres://…")
    .addOption(
      new Option(
        "--to-layout <layout>",
        "table layout in a PostgreSQL target, as ?layout= in its URL",
      ).choices(postgres_layouts),
    );
  addSettings(copy, database_settings);
  addExamples(copy, "user-api copy --to postgres://user@localhost/user_api");
  copy.action(({ to, toLayout: layout = null }) =>
    copyStore({ to, layout }, flagsOf(copy), system),
  );

  const health = program
    .command("health")
    .description("check whether the server is healthy; exits with 1 if not");
  addSettings(health, Object.keys(health_settings) as SettingName[], health_settings);
  addExamples(health, "user-api health", "user-api health --port 8080");
  health.action(() => checkHealth(flagsOf(health), system));
}

function addInformation(program: Command, system: System): void {
  const openapi = program
    .command("openapi")
    .description("print the OpenAPI document, as served at /api/v1/openapi.json");
  addExamples(openapi, "user-api openapi >openapi.json");
  openapi.action(() => printDocument(version, system));
  const print_version = program.command("version").description("print the version");
  addExamples(print_version, "user-api version");
  print_version.action(() => system.stdout(`${version}\n`));
}

/** Replaces commander's own help command, which prints the general help if the command is unknown. */
function addHelp(parent: Command): void {
  parent
    .helpCommand(false)
    .command("help")
    .description("print the help of a command")
    .argument("[command...]", "name of the command")
    .action((names: string[]) => {
      let command = parent;
      for (const name of names) {
        const found = command.commands.find((candidate) => candidate.name() === name);
        command = found ?? command.error(`error: unknown command '${name}'`);
      }
      command.outputHelp();
    });
}

/** @returns e.g. `user-api token create` */
function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}

function hintOf(command: Command): string {
  const what = command.commands.length > 0 ? "a list of commands" : "its options";
  return `Run '${fullName(command)} --help' for ${what}.`;
}

function addHints(command: Command): void {
  command.showHelpAfterError(hintOf(command));
  for (const subcommand of command.commands) addHints(subcommand);
}

/** Changes commander's `error: unknown …` to the style of our own messages. */
function capitalize(message: string): string {
  return message.replace(/^error: (.)/, (_, first: string) => first.toUpperCase());
}

function createProgram(system: System): Command {
  const program = new Command("user-api")
    .description("JSON API for users and orders in a single binary, on SQLite or PostgreSQL.")
    .exitOverride()
    .helpOption("-h, --help", "print this help")
    .configureOutput({
      writeOut: system.stdout,
      writeErr: system.stderr,
      outputError: (message, write) => write(capitalize(message)),
    })
    .version(version, "-V, --version", "print the version");
  addServe(program, system);
  addToken(program, system);
  addImportAndExport(program, system);
  addSeed(program, system);
  addMaintenance(program, system);
  addInformation(program, system);
  for (const command of [...program.commands, program]) {
    if (command.commands.length > 0) addHelp(command);
  }
  addExamples(
    program,
    "user-api serve",
    "user-api token create laptop",
    "user-api help token create",
  );
  addHints(program);
  return program;
}

/**
 * Runs one command line, without the program's name.
 * @returns the exit code: 0, or 2 after a usage error
 * @throws {AppError} operator if the command fails
 */
export async function runCommand(args: readonly string[], system: System): Promise<number> {
  const program = createProgram(system);
  let running = program;
  program.hook("preAction", (_program, command) => {
    running = command;
  });
  const [name = "-"] = args;
  const is_known = name.startsWith("-") || program.commands.some((each) => each.name() === name);
  try {
    // With `--help` commander prints the general help instead of an error.
    await program.parseAsync(is_known ? args : [name], { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
    if (!(error instanceof AppError) || error.code !== "invalid") throw error;
    system.stderr(`${messageOf(error)}\n${hintOf(running)}\n`);
    return USAGE_EXIT_CODE;
  }
}
