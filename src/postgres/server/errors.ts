import { SQL } from "bun";
import { AppError, messageOf, systemCode } from "../../base/error.ts";

const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";
const SERIALIZATION_FAILURE = "40001";
const DEADLOCK = "40P01";
const CONNECTION_FAILURE = "08006";
const INTERNAL_ERROR = "XX000";
const LOCK_TIMEOUT = "55P03";

/**
 * SQLSTATEs that are not caused by the request: connection (08), login (28, 3D), insufficient resources (53),
 * shutdown or timeout (57, 55P03, 25P03), read-only server (25006), permission (42501), system error (58), rollback (40).
 */
const TRANSIENT = /^(08|28|3D|53|57|58|55P03|25006|25P03|42501|40)/;
/** Messages of Citus or libpq after the loss of a worker or of the coordinator: the statement may be committed. */
const WORKER_LOST = new RegExp(
  [
    "^failure on connection marked as essential",
    "^could not commit transaction for shard",
    "^SSL (SYSCALL error|connection has been closed)",
    "^server closed the connection unexpectedly",
    "^(connection not open|no connection to the server)",
    "^could not (receive data from|send data to) server",
    "^postmaster was shut down",
    "^terminating connection due to ",
    // The coordinator was killed during a commit: the transaction is committed, but its workers may not know yet.
    "^cannot abort transaction \\d+, it was already committed",
  ].join("|"),
);
/** Citus reports errors of its workers, e.g. of copying new rows to them, as internal errors. */
const workerErrors: readonly (readonly [message: RegExp, state: string])[] = [
  [/^canceling statement due to lock timeout/, LOCK_TIMEOUT],
  [/ violates foreign key constraint /, FOREIGN_KEY_VIOLATION],
  [/^duplicate key value violates unique constraint /, UNIQUE_VIOLATION],
  [/^deadlock detected/, DEADLOCK],
  [WORKER_LOST, CONNECTION_FAILURE],
];
/** What a client reads about a server that is connected, by SQLSTATE. */
const unavailableReasons: readonly (readonly [RegExp, string])[] = [
  [/^(55P03|57014)$/, "is busy"],
  [/^25006$/, "is read-only at the moment"],
  [/^42501$/, "denies the service a permission that it needs"],
  [/^53/, "lacks disk space, memory or connections"],
];
const CONNECTION_LOST =
  /^ERR_POSTGRES_(CONNECTION|IDLE_TIMEOUT|LIFETIME_TIMEOUT|TLS|QUERY_CANCELLED)|^E[A-Z]+$/;

/**
 * Codes of a failed certificate verification: that of the host name check, and those of OpenSSL's X509_V_ERR_* without the
 * prefix. The others of the runtime begin with `ERR_`, or are one word.
 * @see https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/
 */
const CERTIFICATE_ERROR = /^ERR_TLS_CERT_|^(?!ERR_)[A-Z]+(_[A-Z]+)+$/;

/** Bun reads the file whenever it opens a connection. */
const NO_CA_FILE = /^ERR_INVALID_ARG_TYPE Unable to access caFile path/;

/** @returns the SQLSTATE of an error that the server reported; empty for any other error */
export function sqlState(error: unknown): string {
  const found = error instanceof AppError ? error.cause : error;
  if (!(found instanceof SQL.PostgresError)) return "";
  if (found.errno !== INTERNAL_ERROR) return found.errno ?? "";
  return workerErrors.find(([message]) => message.test(found.message))?.[1] ?? INTERNAL_ERROR;
}

function isConnectionError(error: unknown): boolean {
  const code = systemCode(error);
  if (CONNECTION_LOST.test(code) || CERTIFICATE_ERROR.test(code)) return true;
  return NO_CA_FILE.test(`${code} ${messageOf(error)}`);
}

export function isRolledBack(error: unknown): boolean {
  return [SERIALIZATION_FAILURE, DEADLOCK].includes(sqlState(error));
}

/** @returns whether a write may succeed now. It read what a constraint depends on, so that has changed since */
export function mayRetryWrite(error: unknown): boolean {
  return isRolledBack(error) || [UNIQUE_VIOLATION, FOREIGN_KEY_VIOLATION].includes(sqlState(error));
}

/** Then their sequence has another name, and Citus makes no generic plans. */
function isDistributedSince(error: unknown): boolean {
  const message = messageOf(error);
  return sqlState(error) === "42P01"
    ? message.includes("orders_id_seq")
    : message.startsWith("could not create distributed plan");
}

/** @returns an `AppError` unavailable if the client can retry the request; otherwise the same error */
export function toUnavailable(error: unknown): unknown {
  if (error instanceof AppError) return error;
  if (isDistributedSince(error)) {
    const problem = "the database was distributed over several servers: restart user-api";
    // Without the cause: each create of a batch would be tried alone.
    return new AppError("unavailable", problem);
  }
  const state = sqlState(error);
  const isTransient = state === "" ? isConnectionError(error) : TRANSIENT.test(state);
  if (!isTransient) return error;
  const [, problem] = unavailableReasons.find(([states]) => states.test(state)) ?? [];
  const message = `the database ${problem ?? "is currently unreachable"}`;
  return new AppError("unavailable", message, { cause: error });
}

export function isReadOnly(error: unknown): boolean {
  return sqlState(error) === "25006";
}

/** @param error one that `toUnavailable` has returned. After the loss of a connection, the statement may be committed */
export function isStatementError(error: unknown): boolean {
  if (error instanceof SQL.PostgresError) return true;
  return sqlState(error) === LOCK_TIMEOUT || isRolledBack(error);
}

/** Thrown if its server lacks an order of the index: it has moved, or the server is to finish the commit. Always retried. */
export const orderMissing: AppError = new AppError(
  "unavailable",
  "the database is recovering from a failure",
);

/** @returns whether an error of several reads may be that of one of them: of a damaged row, or of a worker that is lost */
export function mayConcernOneItem(error: unknown): boolean {
  return sqlState(error) !== "" || error === orderMissing;
}

/** Messages for the operator, by SQLSTATE or code, a space and the message of an error. The first match applies. */
const errorMessages: readonly (readonly [text: RegExp, message: string])[] = [
  // The end of a refusal by `pg_hba.conf`, and messages of managed servers and PgBouncer.
  [
    /, no encryption$|^\S* SSL (connection is )?required/,
    "the server rejects this connection without TLS: add sslmode=require to the URL, or allow the host in pg_hba.conf",
  ],
  // Bun.SQL has one code for both.
  [/^ERR_POSTGRES_CONNECTION_REFUSED/, "connection refused, or unknown host"],
  [/^ERR_POSTGRES_CONNECTION_TIMEOUT/, "no response from the server"],
  [/^ERR_POSTGRES_CONNECTION/, "the server closed the connection"],
  [/^ERR_POSTGRES_TLS_NOT_AVAILABLE/, "the URL requires TLS, but the server does not support it"],
  [NO_CA_FILE, "the sslrootcert file does not exist or cannot be read"],
  [
    /^08P01 unsupported startup parameter/,
    "the connection pooler rejects connection settings: add prepare=false to the URL",
  ],
  [/^25006/, "the server is a standby, or the database is read-only"],
  [/^28P01/, "the user name or the password is wrong"],
  [/^28/, "the server does not let this user log in from this host"],
  [/^3D000/, "the database does not exist: create it with `createdb`"],
  [
    /^42501 permission denied for schema/,
    "permission denied: the user must own the database's schema, or have the right to create tables",
  ],
  [
    /^42501 (permission denied for|must be owner of) table/,
    "the tables belong to another user: restore with --no-owner and --role=USER",
  ],
  [
    /^42501 .* row-level security/,
    "row-level security hides rows from this user: disable it, or make this user the owner of the tables",
  ],
  [/^53300/, "the server has too many connections"],
  [/^55P03/, "another session has locked tables: see pg_blocking_pids and pg_stat_activity"],
  [/^57P03/, "the server is starting up or shutting down"],
];

/** @param attempt start of the message, e.g. `Cannot open postgres://localhost/a`. Unexpected errors are returned as they are */
export function describePostgresError(attempt: string, error: unknown): unknown {
  const cause = error instanceof AppError && error.cause !== undefined ? error.cause : error;
  if (cause instanceof AppError) return new AppError("operator", `${attempt}: ${cause.message}`);
  if (cause instanceof URIError)
    return new AppError("operator", `${attempt}: a % in the URL must be written as %25`);
  const code = systemCode(cause);
  if (CERTIFICATE_ERROR.test(code)) {
    const problem = "the certificate of the server cannot be verified";
    return new AppError("operator", `${attempt}: ${problem}: ${messageOf(cause)} (${code})`);
  }
  const text = `${sqlState(cause) || code} ${messageOf(cause)}`;
  const [, message] = errorMessages.find(([pattern]) => pattern.test(text)) ?? [];
  // Bun.SQL throws a TypeError if the URL is invalid, and a SyntaxError if a value is not the JSON that it should be.
  const expected = [SQL.SQLError, TypeError, SyntaxError].some((kind) => cause instanceof kind);
  if (message === undefined && !expected) return error;
  return new AppError("operator", `${attempt}: ${message ?? messageOf(cause)}`);
}
