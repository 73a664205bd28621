// Traces the system calls of the server. Their order shows that each write was on disk before it was acknowledged.
// Killing the server (changes-model.test.ts) cannot show this, because the page cache survives.
import { expect } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { binary, runProgram, startProgram } from "../support/program.ts";
import { createUser, token, urlOf } from "./archived-place.ts";
import { testIf } from "./on-binary.ts";
import { obstacle, skipTraced } from "./strace.ts";

const test = testIf(!skipTraced);

const CLIENTS = 8;
const CREATES = 50;

/** One system call. Its times are line numbers of the trace. */
interface Call {
  readonly name: string;
  /** The file of its descriptor, e.g. `/tmp/x.db-wal` or `socket:[284377]`. */
  readonly file: string;
  readonly text: string;
  readonly began: number;
  /** `Infinity` if it is not in the trace. */
  ended: number;
  result: number;
}

/**
 * strace stops a thread at the start and at the end of a call until it has written the line. So if the end of one
 * call comes before the start of another in the trace, this was also their order, even in different threads.
 */
function readTrace(trace: string): Call[] {
  const calls: Call[] = [];
  const unfinished = new Map<string, Call>();
  for (const [line, text] of trace.split("\n").entries()) {
    const [, thread = "", rest = ""] = /^(\d+) +[\d.]+ (.*)$/.exec(text) ?? [];
    const [, name, file] = /^(\w+)\(\d+<(.*?)>[,) ]/.exec(rest) ?? [];
    const result = Number(/ = (-?\d+)[^=]*$/.exec(rest)?.[1] ?? Number.NaN);
    if (name !== undefined && file !== undefined) {
      const done = !rest.endsWith("<unfinished ...>");
      const ended = done ? line : Number.POSITIVE_INFINITY;
      const call = { name, file, text: rest, began: line, ended, result };
      calls.push(call);
      if (!done) unfinished.set(thread, call);
    } else if (/^<\.\.\. \w+ resumed>/.test(rest)) {
      Object.assign(unfinished.get(thread) ?? {}, { ended: line, result });
      unfinished.delete(thread);
    }
  }
  return calls;
}

/**
 * The rule for each created user, found by email: between the first write to the WAL that has the email and the response
 * with it, the WAL is synced. In between, SQLite writes the rest of the transaction, and nothing else syncs the WAL: no checkpoint is due.
 * @returns the emails that violate the rule, and the reason
 */
function unsynced(calls: readonly Call[], emails: readonly string[]): string[] {
  const wal = calls.filter(({ file }) => file.endsWith("-wal"));
  const syncs = wal.filter(({ name, result }) => /sync/.test(name) && result === 0);
  const responses = calls.filter(
    ({ file, text }) => file.startsWith("socket:") && text.includes("HTTP/1.1 201"),
  );
  return emails.flatMap((email) => {
    const write = wal.find(({ text }) => text.includes(email));
    const response = responses.find(({ text }) => text.includes(email));
    if (write === undefined) return [`${email}: not in the WAL`];
    if (response === undefined) return [`${email}: no response`];
    const synced = syncs.some(({ began, ended }) => began > write.ended && ended < response.began);
    return synced ? [] : [`${email}: response before it was synced`];
  });
}

async function traceCreates(directory: string, emails: readonly string[]): Promise<string> {
  const trace = join(directory, "trace");
  const calls = "trace=fsync,fdatasync,write,writev,pwrite64,pwritev,sendto,sendmsg";
  // -D: the program is our own child, so that our signal is for it. -s: a page is 4 KB.
  const strace = ["strace", "-D", "-f", "-ttt", "-y", "-s", "5000", "-e", calls, "-o", trace];
  const env = { DATABASE_URL: join(directory, "sync.db"), PORT: "0", API_TOKEN: token };
  const server = startProgram([...strace, binary, "serve"], { env });
  const url = await urlOf(server);
  const create = async (email: string) => expect((await createUser(url, email)).status).toBe(201);
  const rest = [...emails];
  while (rest.length > emails.length / 2) await create(rest.pop() as string);
  const clients = Array.from({ length: CLIENTS }, async () => {
    for (let email = rest.pop(); email !== undefined; email = rest.pop()) await create(email);
  });
  await Promise.all(clients);

  server.kill("SIGTERM");
  await server.ended;
  const ended = new RegExp(`^${server.pid} .*\\+\\+\\+ exited with 0 \\+\\+\\+$`, "m");
  for (;;) {
    const text = await Bun.file(trace).text();
    if (ended.test(text)) return text;
    await Bun.sleep(10);
  }
}

/** Next to the binary: the directory for temporary files may be in memory, where nothing is synced. */
function makeDirectoryOnDisk() {
  expect(obstacle).toBeNull();
  const path = mkdtempSync(join(dirname(binary), "sync-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

test("201 is sent after a sync of what it acknowledges when users are created", async () => {
  using directory = makeDirectoryOnDisk();
  const emails = Array.from({ length: 2 * CREATES }, (_, at) => `sync-${1000 + at}@example.com`);
  const calls = readTrace(await traceCreates(directory.path, emails));
  expect(unsynced(calls, emails)).toEqual([]);
  // Shows that the rule is checked: without the syncs, every user must violate it.
  const without = calls.filter(({ name }) => !name.includes("sync"));
  expect(unsynced(without, emails)).toHaveLength(emails.length);
});

/** Runs a command under strace. @returns its syncs and renames in this directory, in order */
async function traceNames(
  directory: string,
  args: readonly string[],
  options: readonly string[] = [],
): Promise<string[]> {
  const trace = join(directory, "trace");
  const calls = "trace=fsync,fdatasync,link,linkat,rename,renameat,renameat2";
  const strace = ["strace", "-f", "-y", "-s", "500", "-e", calls, "-o", trace, ...options];
  const env = { DATABASE_URL: join(directory, "sync.db") };
  const { code, stderr } = await runProgram([...strace, binary, ...args], { env });
  expect(code, stderr).toBe(0);
  const shown = (path = "") =>
    path.replace(directory, ".").replace(/\.user-api-\d+-[0-9a-f]{8}\./, ".*.");
  return (await Bun.file(trace).text()).split("\n").flatMap((line) => {
    const [, synced] = /sync\(\d+<(.*)>\) += 0$/.exec(line) ?? [];
    if (synced !== undefined) return [`sync ${shown(synced)}`];
    const [, from, to] = /(?:link|rename)\w*\(.*?"(.*?)".*"(.*?)".* = 0$/.exec(line) ?? [];
    return from === undefined ? [] : [`name ${shown(from)} ${shown(to)}`];
  });
}

test("backup, copy, restore and export sync a file before it gets its name, also without hard links, and its directory after, also a new one", async () => {
  using onDisk = makeDirectoryOnDisk();
  const directory = onDisk.path;
  const at = (name: string) => join(directory, name);
  const run = (command: string, ...paths: string[]) =>
    traceNames(directory, [...command.split(" "), ...paths]);
  await run("token create a");
  const withoutLinks = ["-e", "inject=link,linkat:error=EPERM"];
  for (const [name, command, options] of [
    ["b.db", ["backup"], []],
    ["c.db", ["backup"], withoutLinks],
    ["d.db", ["copy", "--to"], []],
  ] as const) {
    const made = await traceNames(directory, [...command, at(name)], options);
    const partial = `./${name}.*.partial/new.db`;
    expect(made.slice(-3)).toEqual([`sync ${partial}`, `name ${partial} ./${name}`, "sync ."]);
  }
  const restore = await run("restore", at("b.db"));
  expect(restore.slice(0, -2)).toContain("sync ./sync.db.*.partial/new.db");
  expect(restore.slice(-2)).toEqual(["name ./sync.db.*.partial/new.db ./sync.db", "sync ."]);
  for (const [name, ...command] of [
    ["token", "create", "a"],
    ["restore", at("b.db")],
  ]) {
    const created = await run(`${name}`, ...command, "--database-url", at(`${name}/new/a.db`));
    expect(created.slice(0, 2)).toEqual([`sync ./${name}`, "sync ."]);
  }
  const output = await run("export users --output", at("u.csv"));
  const named = (name: string) => [
    `sync ${name}.*.partial`,
    `name ${name}.*.partial ${name}`,
    "sync .",
  ];
  const exported = named("./u.csv");
  expect(output.slice(-6)).toEqual([...exported, ...named("./u.csv.sha256")]);
  // A link is followed: the file and its directory are synced, not those of the link.
  mkdirSync(at("links"));
  symlinkSync(at("u.csv"), at("links/u.csv"));
  const followed = await run("export users --force --output", at("links/u.csv"));
  expect(followed.slice(-6, -3)).toEqual(exported);
});
