import { type Flags, readConfig, redactPassword } from "../config.ts";
import { AppError, fail, messageOf } from "../error.ts";
import type { Store } from "../store.ts";
import {
  hashToken,
  isActive,
  isTokenName,
  newToken,
  type Token,
  type TokenScope,
} from "../token.ts";
import type { Io } from "./context.ts";

const UNITS_MS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const DURATION = /^([1-9]\d{0,3})([mhdw])$/;

/** @throws {AppError} operator */
function expiryAfter(duration: string, now: Date): string {
  const [, count, unit] = DURATION.exec(duration) ?? [];
  if (count === undefined || unit === undefined) {
    return fail("operator", "Cannot read --expires: must be like 30m, 12h, 90d or 52w");
  }
  const duration_ms = Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
  return new Date(now.getTime() + duration_ms).toISOString();
}

/** Does its work beside a running server, too. @param create whether a missing database is made */
async function withStore<Result>(
  flags: Flags,
  io: Io,
  create: boolean,
  work: (store: Store) => Promise<Result>,
): Promise<Result> {
  const config = readConfig(io.environment, flags);
  const store = await io.openStore({ ...config, exclusive: false, create, now: io.now });
  try {
    return await work(store);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return fail(
      "operator",
      `Cannot change ${redactPassword(config.database_url)}: ${messageOf(error)}`,
    );
  } finally {
    await store.close();
  }
}

export interface CreateTokenOptions {
  readonly name: string;
  readonly scope: TokenScope;
  /** As in `90d`; `null` for never. */
  readonly expires: string | null;
}

/** Prints the token alone on stdout, so that a script can take it. */
export async function createToken(
  options: CreateTokenOptions,
  flags: Flags,
  io: Io,
): Promise<void> {
  const { name, scope, expires } = options;
  if (!isTokenName(name)) {
    fail("operator", "Cannot read NAME: must be 1 to 100 printable characters");
  }
  const expires_at = expires === null ? null : expiryAfter(expires, io.now());
  const token = newToken();
  await withStore(flags, io, true, (store) =>
    store.tokens.create({ hash: hashToken(token), name, scope, expires_at }),
  );
  io.stderr(`Token ${name} may ${scope} and is shown this once:\n`);
  io.stdout(`${token}\n`);
}

export async function revokeToken(name: string, flags: Flags, io: Io): Promise<void> {
  const revoked = await withStore(flags, io, false, (store) => store.tokens.revoke(name));
  if (revoked === null) fail("operator", `Cannot revoke ${name}: no valid token has this name`);
  io.stderr(`Token ${name} is revoked\n`);
}

function stateOf(token: Token, now: Date): string {
  if (token.revoked_at !== null) return "revoked";
  return isActive(token, now) ? "valid" : "expired";
}

/** A table, its columns as wide as their widest cell. */
function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]?.map((_, column) =>
    Math.max(...rows.map((row) => Bun.stringWidth(row[column] ?? ""))),
  );
  const pad = (cell: string, column: number) =>
    cell + " ".repeat((widths?.[column] ?? 0) - Bun.stringWidth(cell));
  return rows.map((row) => `${row.map(pad).join("  ").trimEnd()}\n`).join("");
}

export async function listTokens(flags: Flags, io: Io): Promise<void> {
  const tokens = await withStore(flags, io, false, (store) => store.tokens.list());
  const now = io.now();
  const rows = tokens.map((token) => [
    token.name,
    token.scope,
    stateOf(token, now),
    token.created_at,
    token.expires_at ?? "never",
    token.last_used_at ?? "never",
  ]);
  io.stdout(formatTable([["NAME", "SCOPE", "STATE", "CREATED", "EXPIRES", "LAST USED"], ...rows]));
}
