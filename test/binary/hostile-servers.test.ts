// Servers that are no PostgreSQL and no S3, or lie: commands end soon with one line, and follow nothing that they say.
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { escapes, expectHarmless, forEachInput, makePicker, startAnswering } from "./hostile.ts";
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

function message(type: string, body: string, length = body.length + 4): string {
  return type + int(length) + body;
}

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

const entry = (name: string) =>
  `<Contents><Key>${name}</Key><LastModified>${escapes}</LastModified><Size>9</Size></Contents>`;
const list = (content: string) => `<ListBucketResult>${content}</ListBucketResult>`;
const more = "<IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken>";
const entities = Array.from(
  { length: 9 },
  (_, at) => `<!ENTITY e${at + 1} "${`&e${at};`.repeat(10)}">`,
);
const bodies: readonly string[] = [
  ...["", "<html></html>", noise, "<ListBucketResult><Contents><Key>a"],
  ...["SlowDown", "NoSuchKey", "PreconditionFailed", escapes].map(
    (code) => `<Error><Code>${code}</Code><Message>${escapes}</Message></Error>`,
  ),
  `<!DOCTYPE a [<!ENTITY e0 "${noise}">${entities.join("")}]>${list(entry("&e9;"))}`,
  `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>${list(entry("bases/&x;"))}`,
  ...["<Contents>".repeat(1e5), `<a ${'b="c" '.repeat(1e5)}/>`, "<KeyCount>9</KeyCount>"].map(list),
  ...[more + entry("generations/00000001"), more, "<IsTruncated>true</IsTruncated>"].map(list),
  list(entry("a".repeat(1e7))),
  list(entry("log/00000001/0000000/01").repeat(1e5)),
  list(["../x", "/etc/passwd", "bases/../../x", "%2e%2e/x", escapes, ""].map(entry).join("")),
  list(entry(`generations/${"9".repeat(20)}`) + entry(`bases/00000001-${"9".repeat(20)}`)),
];
const headers = [
  ...["", "", "", "Content-Encoding: gzip", "Content-Encoding: br", `Server: ${escapes}`],
  ...["Retry-After: 99999999", "Connection: upgrade\r\nUpgrade: x", `x: ${"y".repeat(1e6)}`],
  ...["Content-Length: 7", "Transfer-Encoding: chunked\r\n\r\n7fffffff"],
].map((header) => header && `${header}\r\n`);
const statuses = [
  100, 101, 199, 200, 200, 200, 200, 200, 200, 200, 204, 206, 301, 302, 304, 307, 308, 400, 401,
  403, 404, 409, 412, 416, 429, 500, 501, 503, 999,
];

function answerOfS3(seed: number, elsewhere: string) {
  const { pick } = makePicker(seed);
  const body = pick(bodies);
  const bytes = Buffer.byteLength(body);
  const length = `Content-Length: ${pick([bytes, bytes, bytes, 5, bytes + 99, 1e15, -1, "many"])}`;
  const rest = pick(["", `${length}\r\n`]) + pick(headers);
  const head = `HTTP/1.1 ${pick(statuses)} x\r\nETag: "a"\r\nLocation: http://${elsewhere}/\r\n`;
  const answer = Buffer.from(`${head}${rest}\r\n${body}`);
  return { first: answer, later: answer, after: pick(["end", "silence", "drip", "pour"] as const) };
}

const archiveCommands = [
  ...["archive check", "archive list", "restore --from s3://bucket", "archive promote", "serve"],
  "serve --standby",
];

test("commands end with one line when another object storage answers", async () => {
  // Whoever is sent to another server would give it the credentials.
  const nothing = new Uint8Array();
  await using elsewhere = await startAnswering({ first: nothing, later: nothing, after: "end" });
  await forEachInput(JOBS, seeds, async (seed) => {
    await using server = await startAnswering(answerOfS3(seed, elsewhere.host));
    const args = `${archiveCommands[seed % archiveCommands.length]}`.split(" ");
    await expectHarmless({
      what: `answer ${seed} of S3`,
      args,
      // A standby waits for an archive.
      codes: args.includes("--standby") ? [0, 1] : [1],
      made: /^a\.db/,
      env: {
        ...{ ARCHIVE_URL: "s3://bucket", ARCHIVE_COMMIT: "sync", ARCHIVE_RESTORE: "if-missing" },
        ...{ S3_ENDPOINT: `http://${server.host}`, S3_REGION: "us-east-1" },
        ...{ S3_ACCESS_KEY_ID: "key", S3_SECRET_ACCESS_KEY: "hidden" },
      },
    });
  });
  expect(elsewhere.connections()).toBe(0);
});
