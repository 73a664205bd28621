/** Expected errors. `AppError` is the only class that is thrown on purpose: anything else that is thrown is a bug. */
import { type ErrorKind, errorKinds } from "./error-kinds.ts";

/** Clients know those of responses in JSON as `meta.code` and depend on them: within v1, none is renamed. */
export type ErrorCode = keyof typeof errorKinds;

/** `format` is a text, or a part of the request, that is malformed; `reference` names a record that does not exist. */
export const problemCodes = [
  "required",
  "not_allowed",
  "read_only",
  "duplicate",
  "type",
  "range",
  "length",
  "format",
  "reference",
] as const;
export type ProblemCode = (typeof problemCodes)[number];

export interface ProblemDetails {
  /** Of a `range` or a `length`; both ends are valid. */
  readonly min?: number;
  readonly max?: number;
  /** Of `not_allowed`: the fields, parameters or values that are allowed instead. */
  readonly allowed?: readonly string[];
}

/** A problem with one field of the input. `field` is a path, as in `items[0].quantity`. */
export interface FieldError extends ProblemDetails {
  readonly field: string;
  readonly code: ProblemCode;
  /** Follows the name of the field in a message, e.g. `is required`. */
  readonly problem: string;
}

export class AppError extends Error {
  override readonly name = "AppError";
  readonly code: ErrorCode;
  /** All problems found, in order; empty unless `code` is `validation_failed`. */
  readonly problems: readonly FieldError[];
  /** What is allowed instead, if the error names it for programs: values, a range, or the largest value of a parameter. */
  readonly allowed:
    | readonly string[]
    | { readonly limit: number }
    | { readonly min: number; readonly max: number }
    | undefined;
  /** Of `insufficient_scope`: what is missing. */
  readonly scopes: readonly string[] | undefined;
  /** The name of the token that was rejected, for the log. */
  readonly token: string | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    details: Partial<Pick<AppError, "problems" | "allowed" | "scopes" | "token" | "cause">> = {},
  ) {
    super(message, details);
    this.code = code;
    this.problems = details.problems ?? [];
    this.allowed = details.allowed;
    this.scopes = details.scopes;
    this.token = details.token;
  }
}

/** @param message by default, the one of the error's kind */
export function fail(code: ErrorCode, message?: string): never {
  const { example, text = "" }: ErrorKind = errorKinds[code];
  throw new AppError(code, message ?? example ?? text);
}

/** The message names the first problem. @param problems at least one. @throws {AppError} validation_failed */
export function failInvalid(problems: readonly FieldError[]): never {
  const first = problems[0];
  const message = first === undefined ? "" : `${first.field} ${first.problem}`;
  throw new AppError("validation_failed", `Validation failed: ${message}`, { problems });
}

export function failField(
  field: string,
  code: ProblemCode,
  problem: string,
  details?: ProblemDetails,
): never {
  failInvalid([{ field, code, problem, ...details }]);
}

export function failDuplicate(field: string): never {
  failField(field, "duplicate", "is given more than once");
}

/** @returns the message with its causes, for the operator. Never send it to a client */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { message, cause } = error;
  // A cause that is not an error only marks the error, as that of the archive.
  return cause instanceof Error ? `${message}: ${messageOf(cause)}` : message;
}

/** @returns what is wrong with the input, in a sentence. @throws any other error */
export function problemOf(error: unknown): string {
  if (!(error instanceof AppError && error.code === "validation_failed")) throw error;
  return messageOf(error).replace("Validation failed: ", "");
}

export function shellWord(text: string): string {
  return /^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** @returns the code of a system or SQLite error, e.g. `ENOENT`; empty for any other error */
export function systemCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** A full or read-only disk, or one that fails: no lock, no damage, and not that memory or the path of a file is missing. */
const DISK = /^(SQLITE_(FULL|IOERR(?!_NOMEM)|READONLY(?!_DBMOVED))|E(IO|NXIO|ROFS|NOSPC|DQUOT)$)/;

/** @returns whether the disk is the reason of an error, or of an `unavailable` one */
export function isDiskError(error: unknown): boolean {
  return DISK.test(systemCode(error instanceof AppError ? error.cause : error));
}

function explain(problems: Readonly<Record<string, string>>) {
  return (error: unknown): string | null => problems[systemCode(error)] ?? null;
}

/** An operator can fix all of them. */
export const fileProblem = explain({
  ENOENT: "no such file or directory",
  EACCES: "permission denied",
  EEXIST: "a file has this name",
  EISDIR: "it is a directory",
  ELOOP: "there are too many symbolic links",
  ENOTDIR: "a part of the path is not a directory",
  ENOSPC: "the disk is full",
  EROFS: "the disk is read-only",
  EDQUOT: "the disk quota is exceeded",
  EFBIG: "the file would be larger than allowed",
  EIO: "I/O error",
  ENAMETOOLONG: "the file name is too long",
});

export const connectionProblem = explain({
  ECONNREFUSED: "connection refused",
  ECONNRESET: "the connection was closed",
  ENOTFOUND: "unknown host",
  EAI_AGAIN: "unknown host",
  EHOSTUNREACH: "host unreachable",
  ENETUNREACH: "network unreachable",
  EPROTO: "the server does not use TLS",
  ERR_PROXY_TUNNEL: "the proxy rejects the connection",
  UnsupportedProxyProtocol: "the address of the proxy must begin with http:// or https://",
});
