import { isPostgres } from "../base/database-url.ts";
import { fail, messageOf, shellWord } from "../base/error.ts";
import { quoteReadably } from "../base/readable-text.ts";
import type { Config } from "../domain/config.ts";
import { hashToken, newToken, storeToken, type TokenStore } from "../domain/token.ts";
import type { CommandSystem } from "./system/system.ts";

/** @param url an address that works on this machine, or `unix:` and a path */
function welcome(token: string, url: string, createToken: string): string {
  const rule = "─".repeat(72);
  const socket = /^unix:(.*)/.exec(url)?.[1];
  const curl = socket === undefined ? "curl" : `curl --unix-socket ${shellWord(socket)}`;
  const base = socket === undefined ? url : "http://localhost";
  return `
${rule}
Created the first access token ("first"). It will not be shown again:

  ${token}

Try it:

  ${curl} -H 'Authorization: Bearer ${token}' ${base}/api/v1/users

API reference:         ${base}/api/v1/docs
Create another token:  ${createToken}
${rule}

`;
}

/** Does nothing if the database has ever had a token. @throws {AppError} operator if it cannot be written */
export async function printFirstToken(tokens: TokenStore, url: string, system: CommandSystem) {
  const { config, database, flags, program, stderr } = system;
  // With API_TOKEN the operator has a token already, and the logs of a container are often stored.
  if (config.apiToken !== null || config.readOnly) return;
  const token = newToken();
  const hash = hashToken(token);
  try {
    // Revoked tokens count: an operator who has revoked all of them does not want a new one.
    if ((await tokens.list()).length > 0) return;
    const fields = { hash, name: "first", scope: "write", expires_at: null };
    // Another server, which started at the same time, may have created it.
    if ((await storeToken(tokens, fields)) === null) return;
  } catch (error) {
    fail("operator", `Cannot write ${database}: ${messageOf(error)}`);
  }
  const path = flags.databaseUrl;
  // The URL of PostgreSQL can contain a password.
  const isShown = path !== undefined && !isPostgres(path);
  const databaseFlag = isShown ? ` --database-url ${shellWord(path)}` : "";
  // stdout has only log lines, for programs that parse it.
  stderr(welcome(token, url, `${program} token create NAME${databaseFlag}`));
}

/** API_TOKEN must not be stored: scope, expiry and revocation would have no effect. @throws {AppError} operator */
export async function requireOwnApiToken(tokens: TokenStore, { apiToken }: Config): Promise<void> {
  const stored = apiToken === null ? null : await tokens.find(hashToken(apiToken));
  if (stored === null) return;
  const problem = `it is the token ${quoteReadably(stored.name)} of this database`;
  fail("operator", `Cannot use API_TOKEN: ${problem}, and needs to be a separate one`);
}
