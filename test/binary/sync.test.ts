// Traces the system calls of the server. Their order shows that each write was on disk before it was acknowledged.
// Killing the server (changes-model.test.ts) cannot show this, because the page cache survives.
import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { newToken } from "../../src/domain/token.ts";
import { sendCall } from "../http/server.ts";
import { binary, runProgram, startProgram } from "../support/program.ts";
import { obstacle, skipTraced } from "./strace.ts";

const CLIENTS = 8;
/** Number of users that are created sequentially, and then concurrently. */
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

/** @returns the bytes of the first string in a call, e.g. of `pwrite64(7<…>, "\0\1a", 3, 32) = 3` */
function bytesOf(call: Call): Buffer {
  const escaped = /, "((?:[^"\\]|\\.)*)"/.exec(call.text)?.[1] ?? "";
  const named: Record<string, number> = { n: 10, t: 9, r: 13, v: 11, f: 12 };
  const bytes = [...escaped.matchAll(/\\([0-7]{1,3})|\\(.)|(.)/g)].map(([, octal, one, plain]) => {
    if (octal !== undefined) return Number.parseInt(octal, 8);
    return named[one ?? ""] ?? (one ?? plain ?? "").charCodeAt(0);
  });
  return Buffer.from(bytes);
}

/**
 * Whether a write is the header of a frame that commits a transaction: 24 bytes, whose second four are the size of
 * the database, and 0 in every other frame.
 * @see https://www.sqlite.org/fileformat2.html#the_write_ahead_log
 */
function endsTransaction(write: Call): boolean {
  const bytes = bytesOf(write);
  return bytes.length === 24 && bytes.readUInt32BE(4) !== 0;
}

/**
 * The rule for each created user, found by email:
 * 1. Its page is in the first write to the WAL that contains the email.
 * 2. Its transaction is complete with the page that follows the next commit header. (A frame is a header and a
 *    page, written separately. Group commit puts many creates into one transaction.)
 * 3. Its response starts with the first write to a socket that contains both `201` and the email.
 * 4. A successful sync of the WAL must start after the write of 2, and end before the response of 3.
 * @returns the emails that violate the rule, and the reason
 */
function unsynced(calls: readonly Call[], emails: readonly string[]): string[] {
  const wal = calls.filter(({ file }) => file.endsWith("-wal"));
  const writes = wal.filter(({ name }) => /write/.test(name));
  const syncs = wal.filter(({ name, result }) => /sync/.test(name) && result === 0);
  const responses = calls.filter(
    ({ file, text }) => file.startsWith("socket:") && text.includes("HTTP/1.1 201"),
  );
  const ends = new Set(writes.filter(endsTransaction));
  return emails.flatMap((email) => {
    const page = writes.findIndex(({ text }) => text.includes(email));
    // The header of this page's frame comes before it.
    const header = writes.findIndex((write, at) => at >= page - 1 && ends.has(write));
    const last = writes[header + 1];
    const response = responses.find(({ text }) => text.includes(email));
    if (page === -1 || header === -1 || last === undefined) return [`${email}: not in the WAL`];
    if (response === undefined) return [`${email}: no response`];
    const synced = syncs.some(({ began, ended }) => began > last.ended && ended < response.began);
    return synced ? [] : [`${email}: response before it was synced`];
  });
}

/** Runs the program under strace, creates a user for each email, and returns the trace. */
async function traceCreates(directory: string, emails: readonly string[]): Promise<string> {
  const [trace, token] = [join(directory, "trace"), newToken()];
  const calls = "trace=fsync,fdatasync,write,writev,pwrite64,pwritev,sendto,sendmsg";
  // -D: the program is our own child, so that our signal is for it. -s: a page is 4 KB.
  const strace = ["strace", "-D", "-f", "-ttt", "-y", "-s", "5000", "-e", calls, "-o", trace];
  const env = { DATABASE_URL: join(directory, "sync.db"), PORT: "0", API_TOKEN: token };
  const server = startProgram([...strace, binary, "serve"], {
    env: { ...env, PATH: Bun.env["PATH"] },
  });
  const url = await server.listening;
  expect(url, server.output()).not.toBeNull();

  async function create(email: string): Promise<void> {
    const { status, text } = await sendCall(`${url}`, token, "POST", "/users", { body: { email } });
    expect(status, text).toBe(201);
  }
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

function testTraced(subject: string, work: (directory: string) => Promise<void>): void {
  const title = obstacle === null ? subject : `${subject} (not tested: ${obstacle})`;
  test.skipIf(skipTraced)(
    title,
    async () => {
      expect(obstacle).toBeNull();
      // Next to the binary: the directory for temporary files may be in memory, where nothing is synced.
      const directory = mkdtempSync(join(dirname(binary), "sync-"));
      try {
        await work(directory);
      } finally {
        rmSync(directory, { recursive: true, force: true });
      }
    },
    180_000,
  );
}

testTraced(
  "201 is sent after a sync of what it acknowledges when users are created",
  async (directory) => {
    const emails = Array.from({ length: 2 * CREATES }, (_, index) => {
      return `sync-${String(index).padStart(4, "0")}@example.com`;
    });
    const calls = readTrace(await traceCreates(directory, emails));
    expect(unsynced(calls, emails)).toEqual([]);
    // Shows that the rule is checked: without the syncs, every user must violate it.
    const without = calls.filter(({ name }) => !name.includes("sync"));
    expect(unsynced(without, emails).length).toBe(emails.length);
  },
);

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

testTraced(
  "backup, restore and export sync a file before it gets its name, also without hard links, and its directory after, also a new one",
  async (directory) => {
    const at = (name: string) => join(directory, name);
    await traceNames(directory, ["token", "create", "a"]);
    const withoutLinks = ["-e", "inject=link,linkat:error=EPERM"];
    for (const [name, options] of Object.entries({ "b.db": [], "c.db": withoutLinks })) {
      const made = await traceNames(directory, ["backup", at(name)], options);
      const partial = `./${name}.*.partial/new.db`;
      expect(made.slice(-3)).toEqual([`sync ${partial}`, `name ${partial} ./${name}`, "sync ."]);
    }
    const restore = await traceNames(directory, ["restore", at("b.db")]);
    expect(restore.slice(0, -2)).toContain("sync ./sync.db.*.partial/new.db");
    expect(restore.slice(-2)).toEqual(["name ./sync.db.*.partial/new.db ./sync.db", "sync ."]);
    for (const command of [
      ["token", "create", "a"],
      ["restore", at("b.db")],
    ]) {
      const target = ["--database-url", at(`${command[0]}/new/a.db`)];
      const created = await traceNames(directory, [...command, ...target]);
      expect(created.slice(0, 2)).toEqual([`sync ./${command[0]}`, "sync ."]);
    }
    const output = await traceNames(directory, ["export", "users", "--output", at("u.csv")]);
    const exported = ["sync ./u.csv.*.partial", "name ./u.csv.*.partial ./u.csv", "sync ."];
    expect(output.slice(-6, -3)).toEqual(exported);
    const checksum = [
      "sync ./u.csv.sha256.*.partial",
      "name ./u.csv.sha256.*.partial ./u.csv.sha256",
    ];
    expect(output.slice(-3)).toEqual([...checksum, "sync ."]);
    // A link is followed: the file and its directory are synced, not those of the link.
    mkdirSync(at("links"));
    symlinkSync(at("u.csv"), at("links/u.csv"));
    const followed = await traceNames(directory, [
      "export",
      "users",
      "--force",
      "--output",
      at("links/u.csv"),
    ]);
    expect(followed.slice(-6, -3)).toEqual(exported);
  },
);
