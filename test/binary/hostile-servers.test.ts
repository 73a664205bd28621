// Servers that are no PostgreSQL and no S3, or lie, and archives whose objects were changed: commands end soon, with one
// line, in little memory, write nothing but the database, and obey nothing that they receive. What else a server of S3
// can do wrong is in test/object-storage/s3.test.ts, and objects that lack bytes, or have others, are in
// test/sqlite/archive/damage.test.ts.
import { writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { decodeJson, encodeJson } from "../../src/sqlite/archive/format.ts";
import { type S3Server, startS3Server } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { createUser, makePlace, stop, token, urlOf } from "./archived-place.ts";
import { escapes, expectHarmless, forEachInput, makePicker } from "./hostile.ts";
import { test } from "./on-binary.ts";

/** Most wait for timeouts. */
const JOBS = 48;
const seeds = [...Array(90).keys()];

/** A number of PostgreSQL with four bytes, as text in Latin-1. */
const int = (value: number) =>
  Buffer.from([value >>> 24, value >>> 16, value >>> 8, value]).toString("latin1");
const noise = Array.from({ length: 999 }, (_, at) => String.fromCharCode((at * at) % 251)).join("");

/** Types of messages, and what they have. @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
const messages: readonly (readonly [type: string, body: string])[] = [
  ...[0, 3, 5, 10, 12, 99].map((number) => ["R", int(number)] as const),
  ["R", `${int(10)}SCRAM-SHA-256\0\0`],
  ["R", `${int(11)}r=a,s=c2FsdA==,i=2147483647`],
  ...["28000", "42P01", "25006", "40001", "53300", escapes, ""].map(
    (state) => ["E", `SFATAL\0C${state}\0M${escapes}\nx\0\0`] as const,
  ),
  ["E", `SFATAL\0M${"x".repeat(2e6)}\0\0`],
  ["E", "SFATAL"],
  ["N", `SNOTICE\0M${escapes}\0\0`],
  ["S", `server_version\0${escapes}\0`],
  ["v", int(3) + int(0x7fffffff)],
  ["T", "\xff\xff"],
  ["C", `${escapes}\0`],
  ...[..."12GHIKWZcdnst\0\x7f"].map((type) => [type, ""] as const),
  ["x", noise],
];

const message = (type: string, body: string, length = body.length + 4) => type + int(length) + body;

/** A client that has signed in. */
const signedIn = message("R", int(0)) + message("K", int(1) + int(2)) + message("Z", "I");
/** Answers to a query with a row of text, JSON or an array, up to its end. */
const rows = [25, 114, 1007].flatMap((type) =>
  [`\0\x01${int(3)}{]}`, `\0\x01${int(0x7fffffff)}abc`, `\xff\xff${int(-9)}`].map((row) => {
    const columns = `\0\x01${escapes}\0${int(0)}\0\0${int(type)}\xff\xff${int(-1)}\0\0`;
    const start = message("1", "") + message("t", "\0\0") + message("T", columns);
    return start + message("2", "") + message("D", row);
  }),
);

/**
 * @returns what is sent when a client has sent something, and whenever it has sent more, and what comes after an answer:
 * the end, silence, or the last byte of it again and again
 */
function answerOfPostgres(seed: number) {
  const { random, pick } = makePicker(seed);
  const parts = Array.from({ length: 1 + random(3) }, () => {
    const [type, body] = pick(messages);
    return message(type, body, pick([undefined, undefined, undefined, 0, 0x7fffffff, -1]));
  });
  const text = pick(["", pick(rows)]) + parts.join("") + pick(["", message("Z", "I")]);
  const later = Buffer.from(text, "latin1");
  const first = random(3) === 0 ? later : Buffer.from(signedIn, "latin1");
  return { first, later, after: pick(["end", "silence", "silence", "drip"] as const) };
}

/** A server that answers every client in the same way. */
async function startAnswering({ first, later, after }: ReturnType<typeof answerOfPostgres>) {
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    sockets.add(socket);
    let answer = first;
    socket.on("error", () => {});
    socket.on("data", () => {
      const bytes = answer;
      const isLast = answer === later;
      answer = later;
      socket.write(bytes);
      if (!isLast || after === "silence") return;
      if (after === "end") return void socket.end();
      const timer = setInterval(() => socket.write(bytes.subarray(-1)), 20);
      socket.on("close", () => clearInterval(timer));
    });
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    host: `127.0.0.1:${(listener.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}

const commands = [
  ...["check", "serve", "export users", "import users in.ndjson", "token list", "migrate"],
  ...["changes", "person export 1", "copy --to c.db"],
];

test("commands end with one line when another PostgreSQL answers", async () => {
  await forEachInput(JOBS, seeds, async (seed) => {
    await using server = await startAnswering(answerOfPostgres(seed));
    await expectHarmless({
      what: `answer ${seed} of PostgreSQL`,
      args: `${commands[seed % commands.length]}`.split(" "),
      env: { DATABASE_URL: `postgres://ann:hidden@${server.host}/x` },
      prepare: (data) => writeFileSync(`${data}/in.ndjson`, '{"email":"a@b.cd"}\n'),
    });
  });
});

/** Numbers, texts and values that no archive has. */
const strange: readonly unknown[] = [
  ...[-1, 0.5, 1e15, 1e300, null, "../../../escaped", "", [], {}],
  { generation: 1e9, number: -1 },
  [{ bytes: 1e15, sha256: "" }],
];

type Json = Readonly<Record<string, unknown>>;

/** Changes the bodies of some objects. @param bomb expands to 500 MB @returns what was changed */
function mutate(seed: number, objects: S3Server["objects"], bomb: Uint8Array): string {
  const { pick } = makePicker(seed);
  const keys = [...objects.keys()].sort();
  const pickKey = (pattern: RegExp) => pick(keys.filter((key) => pattern.test(key)));
  const [key, other, segment] = [pickKey(/^/), pickKey(/^/), pickKey(/^shop.log/)];
  const record = pickKey(/^shop.(generations|bases|heartbeats)/);
  const bodyOf = (of: string) => Buffer.from(objects.get(of)?.body ?? []);
  const body = bodyOf(key);
  const set = (at: string, bytes: Uint8Array) =>
    objects.set(at, {
      body: bytes,
      tag: `"${Bun.hash(bytes)}"`,
      modified: new Date().toISOString(),
    });

  /** Changes what an object begins with, and its hash. @param rest what comes then */
  function changeJson(at: string, change: (json: Json) => Json, rest?: Uint8Array): void {
    const old = bodyOf(at);
    const length = old.indexOf(10, old.indexOf(10) + 1) + 1;
    const json = change(decodeJson<Json>(at, old.subarray(0, length)));
    set(at, Buffer.concat([encodeJson(json), rest ?? old.subarray(length)]));
  }

  const changeValue = (json: Json) => ({ ...json, [pick(Object.keys(json))]: pick(strange) });
  const sha256 = new Bun.CryptoHasher("sha256").update(bomb).digest("hex");
  const bytes = pick([100, 8_000_000, 1e9]);
  const ways: Readonly<Record<string, () => unknown>> = {
    extend: () => set(key, Buffer.concat([body, new Uint8Array(40_000_000)])),
    swap() {
      set(key, bodyOf(other));
      set(other, body);
    },
    replay: () => set(segment.replace(/\d{2}$/, "19"), bodyOf(segment)),
    remove: () => objects.delete(key),
    record: () => changeJson(record, changeValue),
    segment: () => changeJson(segment, changeValue),
    bomb: () => changeJson(segment, (json) => ({ ...json, bytes, sha256 }), bomb),
    names() {
      for (const name of ["../x", "log/1/../../x", `log/00000001/0000000/${"9".repeat(20)}`])
        set(`shop/${name}`, body);
    },
  };
  // Records have the most values. The numbers of ways and readers have no common divisor.
  const names = [...Object.keys(ways), "record"];
  const way = `${names[seed % names.length]}`;
  ways[way]?.();
  return `${way} ${key} ${segment} ${record}`;
}

const readers = ["restore --from", "archive check --archive-url", "serve --archive-url"];

test("commands end with one line when archives were changed", async () => {
  const settings = { ARCHIVE_URL: "s3://bucket/shop", ARCHIVE_COMMIT: "sync" };
  await using origin = await makePlace(settings);
  for (let start = 0; start < 2; start += 1) {
    const server = origin.start();
    const url = await urlOf(server);
    for (let at = 0; at < 5; at += 1) await createUser(url);
    await stop(server);
  }
  const bomb = Bun.zstdCompressSync(new Uint8Array(500e6));
  await forEachInput(16, [...Array(64).keys()], async (seed) => {
    await using storage = await startS3Server();
    using directory = makeDirectory();
    for (const [key, object] of origin.storage.objects) storage.objects.set(key, object);
    const what = mutate(seed, storage.objects, bomb);
    // The same objects in a directory.
    const isInDirectory = seed % 4 === 3;
    for (const [key, { body }] of isInDirectory ? storage.objects : [])
      if (!key.includes("..")) await Bun.write(join(directory.path, key), body);
    const url = isInDirectory ? `file://${directory.at("shop")}` : settings.ARCHIVE_URL;
    await expectHarmless({
      what: `${seed}: ${what}`,
      args: `${readers[seed % readers.length]} ${url}`.split(" "),
      env: {
        ...storage.environment,
        ...{ ARCHIVE_COMMIT: "sync", ARCHIVE_RESTORE: "if-missing", API_TOKEN: token },
      },
      codes: [0, 1],
      made: /^a\.db/,
    });
  });
});
