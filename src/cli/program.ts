import { Argument, Command, CommanderError, Option } from "commander";
import { version } from "../../package.json" with { type: "json" };
import { type Flags, flagOf, type SettingName, settings } from "../config.ts";
import { postgres_layouts } from "../store.ts";
import { token_scopes } from "../token.ts";
import { backUpStore, restoreBackup } from "./backup.ts";
import { checkStore } from "./check.ts";
import type { Io } from "./context.ts";
import { copyStore } from "./copy.ts";
import { exportTable } from "./export.ts";
import { bulk_tables, file_formats } from "./format.ts";
import { checkHealth } from "./health.ts";
import { importTable } from "./import.ts";
import { printDocument } from "./openapi.ts";
import { serve } from "./serve.ts";
import { createToken, listTokens, revokeToken } from "./token.ts";

/** Exit code of a command line that makes no sense. */
const USAGE_EXIT_CODE = 2;

function addSettings(command: Command, names: readonly SettingName[]): Command {
  for (const name of names) {
    const { variable, description, default: default_value } = settings[name];
    const otherwise = default_value === null ? "" : `, otherwise ${default_value}`;
    const flags = `--${flagOf(variable)} <value>`;
    command.addOption(new Option(flags, `${description} (${variable}${otherwise})`));
  }
  return command;
}

/** What every command needs that opens the database. */
const database_settings = ["database_url", "postgres_layout"] as const satisfies SettingName[];

/** commander names an option in camel case; a setting has one name everywhere. */
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

/** A standard stream has no path. */
function streamPath(file: string): string | null {
  return file === "-" ? null : file;
}

function addImportAndExport(program: Command, io: Io): void {
  const table = () => new Argument("<table>", "what").choices(bulk_tables);
  const format = () =>
    new Option("--format <format>", "otherwise that of the file's name, or ndjson").choices(
      file_formats,
    );
  const export_command = program
    .command("export")
    .description("write all users or orders, a record a line, beside a running server too")
    .addArgument(table())
    .addOption(format())
    .option("--output <file>", "write there, otherwise to stdout", "-");
  addSettings(export_command, database_settings).action((table, { format = null, output }) =>
    exportTable({ table, format, path: streamPath(output) }, flagsOf(export_command), io),
  );
  const import_command = program
    .command("import")
    .description("read users or orders, as exported or as the API takes them; may be run again")
    .addArgument(table())
    .argument("[file]", "otherwise stdin", "-")
    .addOption(format())
    .option("--key <name>", "name of the import, for orders without ids: the same in every run")
    .option("--dry-run", "only say what would happen", false);
  addSettings(import_command, database_settings).action(
    (table, file, { format = null, key = null, dryRun: dry_run }) =>
      importTable(
        { table, format, path: streamPath(file), key, dry_run },
        flagsOf(import_command),
        io,
      ),
  );
}

function createProgram(io: Io): Command {
  const program = new Command("user-api")
    .description("Users and orders over HTTP, in one executable, over SQLite or PostgreSQL.")
    .exitOverride()
    .configureOutput({ writeOut: io.stdout, writeErr: io.stderr })
    .showHelpAfterError("(see user-api help)")
    .version(version, "-V, --version", "print the version");

  const serve_command = program
    .command("serve")
    .description("serve the API until SIGTERM or SIGINT");
  addSettings(serve_command, Object.keys(settings) as SettingName[]).action(() =>
    serve(version, flagsOf(serve_command), io),
  );

  const token_command = program.command("token").description("make, list and revoke access tokens");
  const create_command = token_command
    .command("create")
    .description("make a token and print it, once")
    .addArgument(new Argument("<name>", "what to call it, e.g. the client's name"))
    .addOption(
      new Option("--scope <scope>", "what it may do").choices(token_scopes).default("write"),
    )
    .option(
      "--expires <duration>",
      "valid for so long, e.g. 30m, 12h, 90d, 52w (default: forever)",
    );
  addSettings(create_command, database_settings).action((name, { scope, expires = null }) =>
    createToken({ name, scope, expires }, flagsOf(create_command), io),
  );
  const list_command = token_command
    .command("list")
    .description("list all tokens, but not the secrets");
  addSettings(list_command, database_settings).action(() => listTokens(flagsOf(list_command), io));
  const revoke_command = token_command
    .command("revoke")
    .description("make a token invalid at once")
    .argument("<name>", "its name");
  addSettings(revoke_command, database_settings).action((name) =>
    revokeToken(name, flagsOf(revoke_command), io),
  );

  const health_command = program
    .command("health")
    .description("ask the running server: exit code 0 when it is well, else 1");
  addSettings(health_command, ["host", "port", "tls_cert", "tls_key"]).action(() =>
    checkHealth(flagsOf(health_command), io),
  );

  const check_command = program
    .command("check")
    .description(
      "walk a database and say what is wrong with it: exit code 0 when nothing is, else 1",
    );
  addSettings(check_command, database_settings).action(() =>
    checkStore(flagsOf(check_command), io),
  );

  const backup_command = program
    .command("backup")
    .description("copy the database into a new file, beside a running server, and check the copy")
    .argument("<file>", "where to; must not be there yet");
  addSettings(backup_command, database_settings).action((file) =>
    backUpStore(file, flagsOf(backup_command), io),
  );

  const restore_command = program
    .command("restore")
    .description("put a backup in the place of the database, which is kept beside it")
    .argument("<file>", "a backup");
  addSettings(restore_command, database_settings).action((file) =>
    restoreBackup(file, flagsOf(restore_command), io),
  );
  addImportAndExport(program, io);

  const copy_command = program
    .command("copy")
    .description("copy the whole database into an empty one, e.g. from SQLite to PostgreSQL")
    .requiredOption("--to <database>", "where to: a path, or postgres://…")
    .addOption(
      new Option(
        "--to-layout <layout>",
        "how the tables are to lie there, otherwise as --postgres-layout says",
      ).choices(postgres_layouts),
    );
  addSettings(copy_command, database_settings).action(({ to, toLayout: layout = null }) =>
    copyStore({ to, layout }, flagsOf(copy_command), io),
  );

  program
    .command("openapi")
    .description("print the API's OpenAPI document, as a server answers it at /api/v1/openapi.json")
    .action(() => printDocument(version, io));

  program
    .command("version")
    .description("print the version")
    .action(() => io.stdout(`${version}\n`));
  return program;
}

/**
 * Runs one command line, without the program's name.
 * @returns the exit code: 0, or 2 when the command line makes no sense
 * @throws {AppError} operator when the command cannot do its work
 */
export async function runCommand(args: readonly string[], io: Io): Promise<number> {
  try {
    await createProgram(io).parseAsync(args, { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
    throw error;
  }
}
