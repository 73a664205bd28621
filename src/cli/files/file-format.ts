import { fail } from "../../base/error.ts";
import { ExportedOrder } from "../../domain/import-rules.ts";
import { User } from "../../domain/user.ts";

export const fileFormats = ["ndjson", "csv"] as const;
export type FileFormat = (typeof fileFormats)[number];

export interface RawRecord {
  readonly header: string;
  /** Line of the file on which the record begins, from 1. */
  readonly line: number;
  /** Approximate size in bytes. */
  readonly size: number;
  /** @returns the record as a JSON value. @throws {AppError} validation_failed */
  parse(): unknown;
  /** Call after `parse`. @returns the record in the format of the input, with why it was rejected, to be imported again */
  withError(message: string): string;
}

/** The field of a rejected record that an import ignores. */
export const ERROR_FIELD = "import_error";
/** The field of a rejected record that holds the text of a line that strict JSON cannot express. */
export const TEXT_FIELD = "import_text";

/** Called with the name of each unknown column or field, which is skipped. `null` in its place: they are errors. */
export type OnUnknown = (name: string) => void;

export const importSchemas = { users: User, orders: ExportedOrder } as const;

/** @returns the path of a file; `null` for `-` and by default, which stand for stdin or stdout. @throws {AppError} usage */
export function streamPath(file = "-"): string | null {
  if (file === "") fail("usage", "The name of the file is empty");
  return file === "-" ? null : file;
}

export function formatFor(format: FileFormat | undefined, path: string | null): FileFormat {
  return format ?? (path !== null && /\.[ct]sv$/i.test(path) ? "csv" : "ndjson");
}
