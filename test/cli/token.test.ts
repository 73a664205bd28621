import { expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { hashToken, hasTokenFormat, newToken, type TokenStore } from "../../src/domain/token.ts";
import { withStore } from "../support/open-store.ts";
import { createToken, failed, type Harness, makeHarness, openWith, reported } from "./harness.ts";

const time = "2026-11-20T18:57:03.120Z";
const header = "NAME  SCOPE  STATE  CREATED  EXPIRES  LAST USED";

/** @returns the table of `token list`, with two spaces between the cells of a row */
async function list(world: Harness): Promise<string[]> {
  const { code, stdout, stderr } = await world.run("token", "list");
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout).toEndWith("\n");
  return stdout.trimEnd().replaceAll(/ {2,}/g, "  ").split("\n");
}

function stored(world: Harness) {
  return withStore(world.path, ({ tokens }) => tokens.list(), { create: false });
}

test("token create prints only the token on stdout, and stores its hash", async () => {
  using world = makeHarness();
  const { code, stdout, stderr } = await world.run("token", "create", "ci");
  expect(code).toBe(0);
  expect(stdout).toMatch(/^uat_[0-9A-Za-z]{36}\n$/);
  expect(hasTokenFormat(stdout.trim())).toBe(true);
  const shown = `Created token "ci" (scope: write) in ${world.path}. It will not be shown again.`;
  expect(stderr).toBe(`Created the database ${world.path}\n${shown}\n`);
  const again = await world.run("token", "create", "b", "--scope", "orders:write,users:read");
  const scope = "users:read,orders:write";
  expect(again.stderr).toStartWith(`Created token "b" (scope: ${scope}) in ${world.path}. It`);
  await world.run("token", "revoke", "b");
  const [first, second] = await stored(world);
  expect(second).toMatchObject({ name: "b", scope });
  expect([first]).toEqual([
    {
      ...{ hash: hashToken(stdout.trim()), name: "ci", scope: "write", created_at: time },
      ...{ expires_at: null, last_used_at: null, revoked_at: null },
    },
  ]);
  const bytes = await Bun.file(world.path).text();
  expect(bytes).not.toContain(stdout.trim());
});

test("token create adds --expires to the current time, and rejects an invalid duration", async () => {
  using world = makeHarness();
  const durations = [
    ["1m", "2026-11-20T18:58:03.120Z"],
    ["12h", "2026-11-21T06:57:03.120Z"],
    ["90d", "2027-02-18T18:57:03.120Z"],
    ["9999w", "2218-07-10T18:57:03.120Z"],
  ];
  for (const [name = ""] of durations) await createToken(world, name, "--expires", name);
  for (const text of ["", " 1d", ..."0d 90 d -1d 1.5h 1y 1D 01d 1d1h 10000d 1s".split(" ")]) {
    const outcome = await world.run("token", "create", "a", `--expires=${text}`);
    const rule = "must be an integer from 1 to 9,999 and m, h, d or w, such as 90d";
    const stderr = `Invalid --expires ${JSON.stringify(text)}: ${rule}\n`;
    expect(outcome, text).toEqual({ code: 2, stdout: "", stderr });
  }
  expect((await stored(world)).map((token) => [token.name, token.expires_at])).toEqual(durations);
});

test("token create accepts a name when it has 1 to 100 printable characters", async () => {
  using world = makeHarness();
  const names = ["a", "😀".repeat(100), "with space", "'; drop table tokens; --"];
  for (const name of names) await createToken(world, name);
  expect((await stored(world)).map(({ name }) => name)).toEqual(names);
  const invalid = ["", " ", " laptop", "laptop ", "a".repeat(101), "a\nb", "\u001b[31m", "a\0"];
  for (const name of [...invalid, "\ud800", "\u200b", "\u202eabc", "a\u00a0b"]) {
    const outcome = await world.run("token", "create", "--", name);
    const shown = JSON.stringify(name).replace(
      /[\u200b\u202e\u00a0]/g,
      (character) => `\\u{${character.charCodeAt(0).toString(16)}}`,
    );
    const rule = "must be 1 to 100 printable characters without a space at the start or the end";
    const stderr = `Invalid name ${shown}: ${rule}\n`;
    expect(outcome, JSON.stringify(name)).toEqual({ code: 2, stdout: "", stderr });
  }
});

test("token list shows the state of each token, oldest first, in columns, and no secrets", async () => {
  using world = makeHarness({ environment: { API_TOKEN: newToken() } });
  await (await world.serve()).stop();
  expect(await list(world)).toEqual([header]);
  const secret = await createToken(world, "forever");
  await createToken(world, "short", "--scope", "orders:read", "--expires", "1m");
  await createToken(world, "名前");
  expect(await world.run("token", "revoke", "名前")).toEqual(reported('Revoked token "名前"'));
  expect(await list(world)).toEqual([
    header,
    `forever  write  valid  ${time}  never  never`,
    `short  orders:read  valid  ${time}  2026-11-20T18:58:03.120Z  never`,
    `名前  write  revoked  ${time}  never  never`,
  ]);
  const text = (await world.run("token", "list")).stdout.trimEnd().split("\n");
  const columns = text.map((line) => Bun.stringWidth(line.split(/SCOPE|write|orders/)[0] ?? ""));
  expect(new Set(columns).size).toBe(1);
  world.clock.time = new Date("2026-11-20T18:58:03.120Z");
  const rows = await list(world);
  expect(rows[2]).toContain("short  orders:read  expired");
  expect(rows.join()).not.toContain(secret);
  expect(rows.join()).not.toContain(hashToken(secret));
  await world.run("token", "revoke", "short");
  expect((await list(world))[2]).toContain("short  orders:read  revoked");
  expect(await world.run("token", "revoke", "名前")).toEqual(
    failed('Cannot revoke token "名前": no valid token has this name'),
  );
  expect(await world.run("token", "create", "forever")).toEqual(
    failed('Cannot create token "forever": a token with this name already exists'),
  );
});

test("names that token create would reject are listed with escapes, and can be revoked", async () => {
  using world = makeHarness();
  const name = " \u202elaptop\u001b[31m\n";
  const fields = { hash: hashToken(newToken()), name, scope: "read", expires_at: null } as const;
  await withStore(world.path, ({ tokens }) => tokens.create(fields));
  const [, row] = await list(world);
  expect(row).toStartWith(String.raw` \u{202e}laptop\u{1b}[31m\u{a}  read  valid`);
  expect((await world.run("token", "revoke", name)).code).toBe(0);
});

const withTokens = (change: (tokens: TokenStore) => Partial<TokenStore>) =>
  openWith(({ tokens }) => ({ tokens: { ...tokens, ...change(tokens) } }));

test("token revoke fails when the database still has the token as valid", async () => {
  const openStore = withTokens(({ list }) => ({
    revoke: async (name) => (await list()).find((token) => token.name === name) ?? null,
  }));
  using world = makeHarness({ openStore });
  await world.run("token", "create", "a");
  expect(await world.run("token", "revoke", "a")).toEqual(
    failed('Cannot revoke token "a": it is still valid: run `user-api check`'),
  );
});

test("tokens that were stored or revoked are reported when the response to the write was lost", async () => {
  const lose = async (written: unknown): Promise<never> => {
    await written;
    throw new AppError("unavailable", "the connection was lost");
  };
  const openStore = withTokens(({ create, revoke }) => ({
    create: (fields) => lose(create(fields)),
    revoke: (name) => lose(revoke(name)),
  }));
  using world = makeHarness({ openStore });
  const server = await world.serve();
  const printed = await server.printed(/^ {2}uat_\w{36}$/m);
  expect(printed).toContain('Created the first access token ("first")');
  await server.stop();
  await createToken(world, "next");
  expect(await world.run("token", "create", "next")).toMatchObject({ code: 1, stdout: "" });
  expect(await world.run("token", "revoke", "next")).toEqual(reported('Revoked token "next"'));
  const states = (await list(world)).map((line) => line.split("  ")[2]);
  expect(states).toEqual(["STATE", "valid", "revoked"]);
});
