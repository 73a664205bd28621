// Servers that are no PostgreSQL and no S3, or lie: commands end soon with one line, and follow nothing that they say.
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { againstBinary } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { escapes, expectHarmless, forEach, makePicker, startAnswering } from "./hostile.ts";

const nothing = new Uint8Array();
const INPUTS = isLong ? 90 : 14;
/** Most wait for timeouts. */
const JOBS = 16;

/** A number of PostgreSQL with four bytes, as text in Latin-1. */
const int = (value: number) =>
  Buffer.from([value >>> 24, value >>> 16, value >>> 8, value]).toString("latin1");
const noise = Array.from({ length: 999 }, (_, at) => String.fromCharCode((at * at) % 251)).join("");
const errors = ["28000", "42501", "42P01", "25006", "40001", "53300", "XX000", escapes, ""];

/** Types of messages, and what they have. @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
const messages: readonly (readonly [type: string, body: string])[] = [
  ...[0, 3, 5, 7, 10, 12, 99].map((number) => ["R", int(number)] as const),
  ["R", `${int(5)}salt`],
  ["R", `${int(10)}SCRAM-SHA-256\0\0`],
  ["R", `${int(10)}${escapes}\0\0`],
  ["R", `${int(11)}r=a,s=c2FsdA==,i=2147483647`],
  ...errors.map((state) => ["E", `SFATAL\0C${state}\0M${escapes}\nx\0\0`] as const),
  ["E", `SFATAL\0M${"x".repeat(2e6)}\0\0`],
  ["E", "SFATAL"],
  ["N", `SNOTICE\0M${escapes}\0\0`],
  ["S", `server_version\0${escapes}\0`],
  ["K", int(1)],
  ["A", `${int(1)}a\0${noise}\0`],
  ["v", int(3) + int(0x7fffffff)],
  ["T", "\xff\xff"],
  ["t", "\xff\xff"],
  ["C", `${escapes}\0`],
  ...[..."12GHIWZcdns\0\x7f"].map((type) => [type, ""] as const),
  ["x", noise],
];

function message(type: string, body: string, length = body.length + 4): string {
  return type + int(length) + body;
}

/** A client that has signed in. */
const signedIn = message("R", int(0)) + message("K", int(1) + int(2)) + message("Z", "I");
/** Answers to a query with a row of text, JSON or an array, up to its end. */
const rows = [
  "",
  ...[25, 114, 1007].map(
    (type) => `\0\x01${escapes}\0${int(0)}\0\0${int(type)}\xff\xff${int(-1)}\0\0`,
  ),
].flatMap((columns) =>
  [`\0\x01${int(3)}{]}`, `\0\x01${int(0x7fffffff)}abc`, `\xff\xff${int(-9)}`].map(
    (row) =>
      message("1", "") +
      message("t", "\0\0") +
      message("T", columns) +
      message("2", "") +
      message("D", row),
  ),
);

function answerOfPostgres(seed: number) {
  const { random, pick } = makePicker(seed);
  const parts = Array.from({ length: 1 + random(3) }, () => {
    const [type, body] = pick(messages);
    return message(type, body, pick([undefined, undefined, undefined, 0, 0x7fffffff, -1]));
  });
  const text = pick(["", "", pick(rows)]) + parts.join("") + pick(["", message("Z", "I")]);
  const answer = Buffer.from(text, "latin1");
  const first = random(3) === 0 ? answer : Buffer.from(signedIn, "latin1");
  return { first, later: answer, after: pick(["end", "silence", "silence", "drip"] as const) };
}

const commands = [
  ...["check", "serve", "export users", "import users in.ndjson", "token list", "migrate"],
  ...["changes", "person export 1", "copy --to c.db"],
];

test.if(againstBinary)(
  `commands end with one line at ${INPUTS} answers of another PostgreSQL`,
  async () => {
    await forEach([...Array(INPUTS).keys()], JOBS, async (seed) => {
      await using server = await startAnswering(answerOfPostgres(seed));
      await expectHarmless({
        what: `answer ${seed} of PostgreSQL`,
        args: `${commands[seed % commands.length]}`.split(" "),
        env: { DATABASE_URL: `postgres://ann:hidden@${server.host}/x` },
        prepare: (data) => writeFileSync(`${data}/in.ndjson`, '{"email":"a@b.cd"}\n'),
      });
    });
  },
  300_000,
);

const key = "generations/00000001";
const entry = (name: string) =>
  `<Contents><Key>${name}</Key><LastModified>${escapes}</LastModified><Size>9</Size></Contents>`;
const list = (content: string) => `<ListBucketResult>${content}</ListBucketResult>`;
const more = "<IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken>";
const entities = Array.from(
  { length: 9 },
  (_, at) => `<!ENTITY e${at + 1} "${`&e${at};`.repeat(10)}">`,
);

const bodies: readonly string[] = [
  ...[
    "",
    "<html></html>",
    noise,
    "<ListBucketResult><Contents><Key>a",
    "\ufeff<ListBucketResult/>",
  ],
  ...["SlowDown", "NoSuchKey", "PreconditionFailed", escapes].map(
    (code) =>
      `<Error><Code>${code}</Code><Message>${escapes}</Message><Region>../x</Region></Error>`,
  ),
  `<!DOCTYPE a [<!ENTITY e0 "${noise}">${entities.join("")}]>${list(entry("&e9;"))}`,
  `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>${list(entry("bases/&x;"))}`,
  list("<Contents>".repeat(1e5)),
  list(entry("a".repeat(1e7))),
  list(entry("log/00000001/0000000/01").repeat(1e5)),
  list(["../x", "/etc/passwd", "bases/../../x", "%2e%2e/x", escapes, ""].map(entry).join("")),
  list(
    `${entry("generations/99999999999999999999")}${entry("bases/00000001-99999999999999999999")}`,
  ),
  ...[
    `${more}${entry(key)}`,
    more,
    "<IsTruncated>true</IsTruncated>",
    "<KeyCount>9</KeyCount>",
  ].map(list),
  list(`<Contents><Key><![CDATA[${key}]]></Key></Contents>`),
  list(`<a ${'b="c" '.repeat(1e5)}/>`),
];
const statuses = [
  ...[
    100, 101, 199, 200, 200, 200, 200, 200, 200, 200, 204, 206, 301, 302, 304, 307, 308, 400, 401,
  ],
  ...[403, 404, 409, 412, 416, 429, 500, 501, 503, 999],
];

function answerOfS3(seed: number, elsewhere: string) {
  const { pick } = makePicker(seed);
  const body = pick(bodies);
  const bytes = Buffer.byteLength(body);
  const length = pick([bytes, bytes, bytes, bytes, 5, bytes + 99, 1e15, -1, "many"]);
  const rest = [
    ...["", "", `Content-Length: ${length}\r\n`, `Content-Length: ${length}\r\n`],
    ...[`Content-Length: ${length}\r\nContent-Length: 7\r\n`, `${"x: y\r\n".repeat(9)}`],
    ...["Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n", `Server: ${escapes}\r\n`],
    ...[
      "Retry-After: 99999999\r\n",
      `x: ${"y".repeat(1e6)}\r\n`,
      "Connection: upgrade\r\nUpgrade: x\r\n",
    ],
    "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n",
  ];
  const head = `HTTP/1.1 ${pick(statuses)} x\r\nETag: "a"\r\nLocation: http://${elsewhere}/\r\n`;
  const answer = Buffer.from(`${head}${pick(rest)}\r\n${body}`);
  return { first: answer, later: answer, after: pick(["end", "silence", "drip", "pour"] as const) };
}

const archiveCommands = [
  ...["archive check", "archive list", "restore --from s3://bucket", "archive promote", "serve"],
  "serve --standby",
];

test.if(againstBinary)(
  `commands end with one line at ${INPUTS} answers of another object storage`,
  async () => {
    // Whoever is sent to another server would give it the credentials.
    await using elsewhere = await startAnswering({ first: nothing, later: nothing, after: "end" });
    await forEach([...Array(INPUTS).keys()], JOBS, async (seed) => {
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
  },
  300_000,
);
