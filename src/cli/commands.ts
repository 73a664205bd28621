import { Argument, type Command, Option } from "commander";
import { changeTypes } from "../domain/change.ts";
import { type SettingName, settingNames } from "../domain/settings.ts";
import { intervalLengths } from "../domain/sums.ts";
import { scopeWords } from "../domain/token.ts";
import { backUpStore } from "./backup.ts";
import { printVersion } from "./build.ts";
import { printChanges } from "./changes.ts";
import { checkStore } from "./check.ts";
import { copyStore } from "./copy.ts";
import { deliver } from "./deliver.ts";
import { exportTable } from "./export.ts";
import { fileFormats, importSchemas } from "./files/file-format.ts";
import { checkHealth } from "./health.ts";
import { importTable } from "./import.ts";
import { migrateStore } from "./migrate.ts";
import { moveIn } from "./move-in/move-in.ts";
import { printRules, shopNames } from "./move-in/rules.ts";
import { printDocument } from "./openapi.ts";
import { erasePerson, exportPerson } from "./person.ts";
import { checkArchive, listArchive, promoteArchive, restoreBackup } from "./restore.ts";
import { serve } from "./serve.ts";
import { printSums } from "./sums.ts";
import type { CommandSystem } from "./system/system.ts";
import { createToken, listTokens, revokeToken } from "./token.ts";

type Commands = Readonly<Record<string, CommandDefinition>>;

/** How a command looks in the help, and what it does. Examples and settings follow its own options. */
export interface CommandDefinition {
  readonly description: string;
  readonly arguments?: readonly Argument[];
  readonly options?: readonly Option[];
  readonly flags?: Readonly<Record<string, string>>;
  /** Default: the setting that every command needs to open the database; of a command with subcommands, none. */
  readonly settings?: readonly SettingName[];
  readonly examples: readonly string[];
  readonly commands?: Commands;
  /** Receives arguments, options and the command from commander. Nothing checks their types: keep them in step with the flags. */
  readonly run?: (
    system: CommandSystem,
    ...parsed: Parameters<Parameters<Command["action"]>[0]>
  ) => Promise<void> | void;
}

const table = new Argument("<table>", "records to transfer").choices(Object.keys(importSchemas));
const format = new Option(
  "--format <format>",
  "file format (default: by file extension, otherwise ndjson)",
).choices(fileFormats);
const scopes = scopeWords.join(", ");
const person = new Argument("<email>", "email of the user, in any spelling, or the id");
const required = (flag: string, description: string) =>
  new Option(flag, description).makeOptionMandatory();
const json = { "--json": "print the result as JSON, in one line" };

const moveInFlags = {
  "--rules <file>": "rules of this shop as JSON: see move-in rules",
  "--rejects <directory>": "directory for a file of the rejected orders, with the reasons",
  "--dry-run": "read and check everything without changing the database",
};

const commands: Commands = {
  serve: {
    description: "serve the API until SIGTERM or SIGINT (Ctrl-C)",
    flags: { "--check": "check all settings, and exit; nothing is opened or created" },
    settings: settingNames,
    examples: [
      "user-api serve",
      "user-api serve --port 8080 --database-url /var/lib/user-api/user-api.db",
      "LOG_LEVEL=warn user-api serve",
    ],
    run: serve,
  },
  token: {
    description: "create, list and revoke access tokens",
    examples: ["user-api token create laptop", "user-api token list"],
    commands: {
      create: {
        description: "create a token and print it; it is shown only once",
        arguments: [new Argument("<name>", "name of the token, e.g. that of its client")],
        options: [new Option("--scope <scopes>", `what it may do: ${scopes}`).default("write")],
        flags: { "--expires <duration>": "lifetime, e.g. 30m, 12h, 90d, 52w (default: unlimited)" },
        examples: [
          "user-api token create laptop",
          "user-api token create dashboard --scope read --expires 90d",
          "user-api token create till --scope orders:write,users:read",
          "TOKEN=$(user-api token create ci)",
        ],
        run: createToken,
      },
      list: {
        description: "list tokens (without their secrets)",
        flags: json,
        examples: ["user-api token list"],
        run: listTokens,
      },
      revoke: {
        description: "revoke a token",
        arguments: [new Argument("<name>", "name of the token")],
        examples: ["user-api token revoke laptop"],
        run: revokeToken,
      },
    },
  },
  export: {
    description: "write users or orders to a file or to stdout",
    arguments: [table],
    options: [format],
    flags: {
      "--output <file>": "target file (default: stdout)",
      "--force": "overwrite the target file if it exists",
      "--from <time>": "only records created at this time or later",
      "--to <time>": "only records created before this time",
      "--status <statuses>": "only orders in one of these statuses, separated by commas",
    },
    examples: [
      "user-api export users --output users.csv",
      "user-api export orders | gzip >orders.ndjson.gz",
      "user-api export orders --from 2026-11-01T00:00:00+01:00 --to 2026-12-01T00:00:00+01:00",
    ],
    run: exportTable,
  },
  changes: {
    description: "print the changes of users and orders, one JSON object per line",
    flags: {
      "--after <id>": "begin after this change (default: with the oldest one)",
      "--follow": "wait for further changes until SIGTERM or SIGINT (Ctrl-C)",
    },
    settings: ["databaseUrl", "archiveUrl", "archiveCommit"],
    examples: ["user-api changes | tail", "user-api changes --after 1200 --follow"],
    run: printChanges,
  },
  deliver: {
    description: "send each change to a webhook, signed and in order, until SIGTERM or SIGINT",
    options: [
      required("--from <url>", "server to follow"),
      required("--token-file <file>", "token of the server, of scope read"),
      required("--to <url>", "receiver: https://…, or http://… on this machine"),
      required("--secret-file <file>", "one or two secrets: whsec_…, a line each"),
      required("--position <file>", "the last change that was delivered; replaced after each one"),
      new Option(
        "--start <where>",
        "create the position: 0 delivers all changes, now only later ones",
      ).choices(["0", "now"]),
      new Option("--types <types...>", "only changes of these types").choices(changeTypes),
      new Option("--include <what>", "add the record as it is now").choices(["record"]),
    ],
    flags: { "--skip <id>": "step over this change, which must be the next one" },
    settings: [],
    examples: [
      "user-api deliver --from http://127.0.0.1:3000 --token-file token --to https://hooks.example.com/ --secret-file secret --position position --start now",
    ],
    run: deliver,
  },
  sums: {
    description: "print sums of orders by day or month, currency and status, as CSV",
    options: [
      required("--from <time>", "beginning of the first interval"),
      required("--to <time>", "end of the last interval"),
      new Option("--interval <interval>", "length of an interval")
        .choices(intervalLengths)
        .default("day"),
      new Option("--time-zone <zone>", "zone of the days or months").default("UTC"),
    ],
    examples: [
      "user-api sums --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z",
      "user-api sums --from 2026-01-01T00:00:00+01:00 --to 2027-01-01T00:00:00+01:00 --interval month --time-zone Europe/Berlin",
    ],
    run: printSums,
  },
  import: {
    description: "read users or orders from a file or from stdin; safe to repeat",
    arguments: [table, new Argument("[file]", "source file (default: stdin)")],
    options: [format],
    flags: {
      "--update": "change records that exist with other values, instead of rejecting them",
      "--ignore-unknown": "skip unknown columns and fields instead of rejecting them",
      "--rejects <file>":
        "new file for the rejected records and the reasons; import it when they are corrected",
      "--dry-run": "validate the input without changing the database",
    },
    examples: [
      "user-api import users users.csv --dry-run",
      "user-api import users users.csv --rejects rejected.csv",
      "user-api import orders orders.ndjson --update",
      "zcat users.ndjson.gz | user-api import users",
    ],
    run: importTable,
  },
  "move-in": {
    description: "bring the users and orders of a shop, as often as needed until the switch",
    examples: ["user-api move-in woocommerce orders.json", "user-api move-in rules shopify"],
    commands: {
      woocommerce: {
        description: "bring those of a WooCommerce shop",
        arguments: [
          new Argument("<source...>", "URL of the shop, or files of its orders, as JSON or NDJSON"),
        ],
        flags: {
          "--key-file <file>": "of a URL: two lines, key and secret, with read access",
          "--save <file>": "of a URL: new file for the orders; the same command continues it",
          ...moveInFlags,
        },
        examples: [
          "user-api move-in woocommerce https://shop.example.com --key-file key --save orders.ndjson",
          "user-api move-in woocommerce orders.ndjson --rules rules.json --rejects rejected",
        ],
        run: (system, sources, options) => moveIn("woocommerce", system, sources, options),
      },
      shopify: {
        description: "bring those of a Shopify shop",
        arguments: [new Argument("<file...>", "its exports of orders, as CSV")],
        flags: moveInFlags,
        examples: ["user-api move-in shopify orders_export_*.csv --dry-run"],
        run: (system, files, options) => moveIn("shopify", system, files, options),
      },
      rules: {
        description: "print the rules of a move, to change them for --rules",
        arguments: [new Argument("<shop>", "shop of the rules").choices(shopNames)],
        settings: [],
        examples: ["user-api move-in rules woocommerce >rules.json"],
        run: printRules,
      },
    },
  },
  person: {
    description: "hand out or erase what is stored about a person",
    examples: ["user-api person export ann@example.com >ann.json"],
    commands: {
      export: {
        description: "print a user and all of its orders as JSON",
        arguments: [person],
        examples: ["user-api person export ann@example.com >ann.json"],
        run: exportPerson,
      },
      erase: {
        description: "overwrite email, name and metadata of a user, and the metadata of its orders",
        arguments: [person],
        examples: ["user-api person erase ann@example.com", "user-api person erase 1200"],
        run: erasePerson,
      },
    },
  },
  migrate: {
    description: "bring the schema of a database up to date, as the start of a server does",
    flags: { "--distribute": "distribute PostgreSQL over workers of Citus that were added since" },
    examples: ["user-api migrate", "user-api migrate --database-url copy.db"],
    run: migrateStore,
  },
  check: {
    description: "verify a database; exits with 1 if problems are found",
    flags: json,
    examples: ["user-api check", "user-api check --database-url backup.db"],
    run: checkStore,
  },
  backup: {
    description: "copy a SQLite database to a new file and verify the copy",
    arguments: [new Argument("[file]", "target file; must not exist")],
    flags: {
      "--directory <directory>":
        "directory for a backup that is named after the time, instead of a file; one per database",
      "--keep <number>": "number of backups to keep in the directory (default: all)",
      ...json,
    },
    examples: ["user-api backup backup.db", "user-api backup --directory /backups --keep 14"],
    run: backUpStore,
  },
  restore: {
    description: "restore a backup or an archive; the current database is kept next to it",
    arguments: [new Argument("[file]", "file made by backup")],
    flags: {
      "--from <url>": "archive to restore: s3://bucket/prefix or file:///directory",
      "--at <time>": "state of the archive at this time (default: the newest state)",
    },
    examples: [
      "user-api restore backup.db",
      "user-api restore --from s3://bucket/user-api",
      "user-api restore --from s3://bucket/user-api --at 2026-11-22T06:11:30Z",
    ],
    run: restoreBackup,
  },
  archive: {
    description: "check the archive of a database, list what it can restore, and switch servers",
    examples: ["user-api archive check", "user-api archive list"],
    commands: {
      list: {
        description: "print the times that the archive can restore; exits with 1 if it has a gap",
        flags: json,
        settings: ["archiveUrl"],
        examples: ["user-api archive list --archive-url s3://bucket/user-api"],
        run: listArchive,
      },
      check: {
        description: "restore the archive into a temporary file and verify it",
        settings: ["databaseUrl", "archiveUrl"],
        examples: ["user-api archive check --archive-url s3://bucket/user-api"],
        run: checkArchive,
      },
      promote: {
        description: "let the standby take over immediately, for a planned switch",
        settings: ["archiveUrl"],
        flags: { "--force": "also if no standby is known to run" },
        examples: ["user-api archive promote --archive-url s3://bucket/user-api"],
        run: promoteArchive,
      },
    },
  },
  copy: {
    description: "copy a database into an empty one, e.g. from SQLite to PostgreSQL",
    options: [required("--to <database>", "target: a path, or postgres://…")],
    examples: ["user-api copy --to postgres://user@localhost/user_api"],
    run: copyStore,
  },
  health: {
    description: "check whether the server with these settings is healthy; exits with 1 if not",
    settings: ["host", "port", "tlsCert", "tlsKey"],
    examples: ["user-api health", "user-api health --port 8080"],
    run: checkHealth,
  },
  openapi: {
    description: "print the OpenAPI document, as served at /api/v1/openapi.json",
    settings: [],
    examples: ["user-api openapi >openapi.json"],
    run: printDocument,
  },
  version: {
    description: "print the version",
    flags: json,
    settings: [],
    examples: ["user-api version"],
    run: printVersion,
  },
};

export const rootCommand: CommandDefinition = {
  description: "JSON API for users and orders in a single binary, on SQLite or PostgreSQL.",
  examples: ["user-api serve", "user-api token create laptop", "user-api token create --help"],
  commands,
};
