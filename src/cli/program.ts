import { Command, CommanderError } from "commander";
import { redactPassword } from "../base/database-url.ts";
import { AppError, messageOf } from "../base/error.ts";
import { escapeInvisible } from "../base/readable-text.ts";
import { type Flags, readConfig } from "../domain/config.ts";
import { flagOf, type SettingName, settings, variableOf } from "../domain/settings.ts";
import { versionText } from "./build.ts";
import { type CommandDefinition, rootCommand } from "./commands.ts";
import type { System } from "./system/system.ts";

const USAGE_EXIT_CODE = 2;

/** Settings have the names of their options, which commander writes in camel case. */
function flagsOf(command: Command): Flags {
  const given = Object.entries(command.opts()).filter(([name]) => Object.hasOwn(settings, name));
  // `true` is the value of a flag that has none.
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}

function define(command: Command, definition: CommandDefinition, system: System): void {
  const { description, examples, run, commands } = definition;
  command.description(description);
  for (const argument of definition.arguments ?? []) command.addArgument(argument);
  for (const option of definition.options ?? []) command.addOption(option);
  for (const flag of Object.entries(definition.flags ?? {})) command.option(...flag);
  const defaultSettings: readonly SettingName[] = commands === undefined ? ["databaseUrl"] : [];
  const used = definition.settings ?? defaultSettings;
  for (const name of used) {
    const { default: initial, description } = settings[name];
    const value = initial === "false" ? "" : " <value>";
    // In the style of commander.
    const shown = initial === null ? "" : `default: ${JSON.stringify(initial)}, `;
    command.option(flagOf(name) + value, `${description} (${shown}env: ${variableOf(name)})`);
  }
  const lines = examples.map((example) => `  ${example}\n`).join("");
  command.addHelpText("after", `\nExamples:\n${lines}`);
  if (commands !== undefined) {
    for (const [name, subcommand] of Object.entries(commands))
      define(command.command(name), subcommand, system);
    command.helpCommand("help [command]", "print the help of a command");
  }
  command.showHelpAfterError("--help lists commands and options.");
  if (run !== undefined) {
    command.action(async (...parsed) => {
      try {
        const flags = flagsOf(command);
        const config = readConfig(system.environment, flags, used);
        const database = redactPassword(config.databaseUrl);
        await run({ ...system, flags, config, database }, ...parsed);
      } catch (error) {
        if (!(error instanceof AppError && error.code === "usage")) throw error;
        // One line, which names the bad value.
        command.showHelpAfterError(false);
        command.error(messageOf(error));
      }
    });
  }
}

/** @param args without the program's name. @returns 0, or 2 after a usage error. @throws {AppError} operator */
export async function runCommand(args: readonly string[], system: System): Promise<number> {
  const command = new Command("user-api")
    .exitOverride()
    .helpOption("-h, --help", "print this help")
    .configureOutput({
      writeOut: system.stdout,
      writeErr: system.stderr,
      outputError(message, write) {
        const text = message.split("\n").map(escapeInvisible).join("\n");
        // `error: unknown …` in the style of our own messages.
        write(text.replace(/^error: (.)/, (_, first: string) => first.toUpperCase()));
      },
    })
    .version(versionText(system), "-V, --version", "print the version");
  define(command, rootCommand, system);
  try {
    await command.parseAsync(args, { from: "user" });
    return 0;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
  }
}
