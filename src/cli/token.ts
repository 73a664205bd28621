import { fail } from "../base/error.ts";
import { escapeInvisible, quoteReadably } from "../base/readable-text.ts";
import { invalidValue, readWords } from "../domain/config.ts";
import {
  hashToken,
  isTokenName,
  newToken,
  scopeWords,
  stateOf,
  storeToken,
  type Token,
} from "../domain/token.ts";
import { type CommandSystem, type JsonOption, printResult, withStore } from "./system/system.ts";

const UNITS_MS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const DURATION = /^([1-9]\d{0,3})([mhdw])$/;

function expiryAfter(duration: string, now: Date): string {
  const [, count, unit] = DURATION.exec(duration) ?? [];
  if (count === undefined || unit === undefined) {
    const problem = "must be an integer from 1 to 9,999 and m, h, d or w, such as 90d";
    return fail("usage", invalidValue("--expires", duration, problem));
  }
  const durationMs = Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
  return new Date(now.getTime() + durationMs).toISOString();
}

/** Only the token is on stdout, for scripts. */
export async function createToken(
  system: CommandSystem,
  name: string,
  { expires, ...options }: { readonly scope: string; readonly expires?: string },
): Promise<void> {
  const scope = readWords("--scope", options.scope, scopeWords).join();
  if (!isTokenName(name)) {
    const problem = "must be 1 to 100 printable characters without a space at the start or the end";
    fail("usage", invalidValue("name", name, problem));
  }
  const expiresAt = expires === undefined ? null : expiryAfter(expires, system.now());
  const token = newToken();
  const fields = { hash: hashToken(token), name, scope, expires_at: expiresAt };
  await withStore(system, { create: true }, async ({ tokens }) => {
    const taken = `Cannot create token "${name}": a token with this name already exists`;
    if ((await storeToken(tokens, fields)) === null) fail("operator", taken);
  });
  system.stdout(`${token}\n`);
  system.stderr(`Created token "${name}" (scope: ${scope}) in ${system.database}. `);
  system.stderr("It will not be shown again.\n");
}

export async function revokeToken(system: CommandSystem, name: string): Promise<void> {
  const problem = await withStore(system, {}, async ({ tokens }) => {
    const isValid = (token: Token) => token.name === name && token.revoked_at === null;
    const token = (await tokens.list()).find(isValid);
    if (token === undefined) return "no valid token has this name";
    // A write that was rejected can have been made, as in `storeToken`.
    const revoking = tokens.revoke(name);
    await Promise.allSettled([revoking]);
    // No one looks at a token again that is said to be revoked.
    const stored = (await tokens.list()).find(({ hash }) => hash === token.hash);
    if (stored?.revoked_at != null) return null;
    await revoking;
    return "it is still valid: run `user-api check`";
  });
  if (problem !== null) fail("operator", `Cannot revoke token ${quoteReadably(name)}: ${problem}`);
  system.stderr(`Revoked token ${quoteReadably(name)}\n`);
}

function formatTable(rows: readonly (readonly string[])[]): string {
  // A name in a database that was changed by others could contain control characters.
  const cells = rows.map((row) => row.map(escapeInvisible));
  const widths = cells[0]?.map((_, column) =>
    Math.max(...cells.map((row) => Bun.stringWidth(row[column] ?? ""))),
  );
  const pad = (cell: string, column: number) =>
    cell + " ".repeat((widths?.[column] ?? 0) - Bun.stringWidth(cell));
  return cells.map((row) => `${row.map(pad).join("  ").trimEnd()}\n`).join("");
}

export async function listTokens(system: CommandSystem, { json }: JsonOption): Promise<void> {
  const stored = await withStore(system, { mode: "read" }, (store) => store.tokens.list());
  const now = system.now();
  const tokens = stored.map(({ hash: _, ...token }) => ({ ...token, state: stateOf(token, now) }));
  const rows = tokens.map(({ name, scope, state, created_at, expires_at, last_used_at }) => [
    ...[name, scope, state, created_at, expires_at ?? "never", last_used_at ?? "never"],
  ]);
  const header = ["NAME", "SCOPE", "STATE", "CREATED", "EXPIRES", "LAST USED"];
  printResult(system, json, tokens, formatTable([header, ...rows]));
}
