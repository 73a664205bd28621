// Commands that read an archive whose objects were changed, or whose storage lies: they end, with one line, in little
// memory, and write nothing but the database.
import { test } from "bun:test";
import { join } from "node:path";
import { decodeJson, encodeJson } from "../../src/sqlite/archive/format.ts";
import { type S3Server, startS3Server } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { binary } from "../support/program.ts";
import type { makeRandom } from "../support/random.ts";
import { createUser, makePlace, stop, token, urlOf } from "./archived-place.ts";
import { expectHarmless, forEach, makePicker } from "./hostile.ts";

const ROUNDS = Number(Bun.env["HOSTILE_ROUNDS"] ?? (isLong ? 64 : 8));
/** Some wait for timeouts. */
const CONCURRENCY = isLong ? 16 : 4;

type Objects = S3Server["objects"];
type Random = ReturnType<typeof makeRandom>;

/** Numbers, texts and values that no archive has. */
const strange: readonly unknown[] = [
  -1,
  0.5,
  1e15,
  1e300,
  null,
  "../../../escaped",
  "",
  [],
  {},
  { generation: 1e9, number: -1 },
  [{ bytes: 1e15, sha256: "" }],
];

function pick<Value>(random: Random, values: readonly Value[]): Value {
  return values[random(values.length)] as Value;
}

function keysOf(objects: Objects, pattern: RegExp): string[] {
  return [...objects.keys()].filter((key) => pattern.test(key)).sort();
}

function set(objects: Objects, key: string, body: Uint8Array): void {
  const tag = `"${Bun.hash(body)}"`;
  objects.set(key, { body, tag, modified: new Date().toISOString() });
}

function bodyOf(objects: Objects, key: string): Uint8Array {
  return new Uint8Array(objects.get(key)?.body ?? []);
}

/** Changes a value of JSON, and its hash. */
function changeJson(random: Random, objects: Objects, key: string): void {
  const value = decodeJson<Record<string, unknown>>(key, bodyOf(objects, key));
  set(
    objects,
    key,
    encodeJson({ ...value, [pick(random, Object.keys(value))]: pick(random, strange) }),
  );
}

/** @returns what a slot says, and the rest of it */
function splitSlot(objects: Objects, key: string) {
  const body = bodyOf(objects, key);
  const length = body.indexOf(10, body.indexOf(10) + 1) + 1;
  const head = decodeJson<Record<string, unknown>>(key, body.subarray(0, length));
  return { head, rest: body.subarray(length) };
}

/** Changes a value in the head of a slot, and its hash. */
function changeHead(random: Random, objects: Objects, key: string): void {
  const { head, rest } = splitSlot(objects, key);
  const changed = { ...head, [pick(random, Object.keys(head))]: pick(random, strange) };
  set(objects, key, Buffer.concat([encodeJson(changed), rest]));
}

/** Puts what expands to 500 MB in the place of the contents of a segment. @param bytes the size in its head */
function putBomb(objects: Objects, key: string, bomb: Uint8Array, bytes: number): void {
  const { head } = splitSlot(objects, key);
  const sha256 = new Bun.CryptoHasher("sha256").update(bomb).digest("hex");
  set(objects, key, Buffer.concat([encodeJson({ ...head, bytes, sha256 }), bomb]));
}

const entry = (key: string) =>
  `<Contents><Key>${key}</Key><LastModified>2026-11-01T00:00:00Z</LastModified><Size>9</Size></Contents>`;
const listOf = (keys: readonly string[], more = "") =>
  `<ListBucketResult>${more}${keys.map(entry).join("")}</ListBucketResult>`;
const truncated = (random: Random) =>
  `<IsTruncated>true</IsTruncated><NextContinuationToken>${random(2 ** 32)}</NextContinuationToken>`;

/** Ways to lie in the answer to a list. */
const lies: readonly (() => string)[] = [
  () => `<ListBucketResult>${"<Contents>".repeat(200_000)}</ListBucketResult>`,
  () =>
    listOf([
      "shop/../x",
      "shop/bases/../../x",
      "/etc/passwd",
      "shop/bases/1-1/..",
      "other/bases/1-1",
    ]),
  () => `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>${listOf(["shop/bases/&x;"])}`,
  () =>
    listOf(["shop/generations/99999999999999999999", "shop/bases/00000001-99999999999999999999"]),
  () => listOf([]).slice(0, -9),
];

/** Takes 20 s to be recognized. */
function misbehaveSlowly(random: Random, server: S3Server): string {
  const way = random(3);
  const key = () => (way === 0 ? "log/00000001/0000000/1" : `generations/${random(2 ** 32)}`);
  server.misbehave = ({ operation }) => {
    if (way === 2) return { do: "drip" };
    return operation === "list"
      ? { do: "answer", body: listOf([`shop/${key()}`], truncated(random)) }
      : null;
  };
  return way === 2 ? "drip" : "endless list";
}

/** Changes the objects, or lets the server misbehave. */
function mutate(random: Random, server: S3Server, bomb: Uint8Array, isSlow: boolean): string {
  const { objects } = server;
  const own = /^shop\//;
  const key = pick(random, keysOf(objects, own));
  const other = pick(random, keysOf(objects, own));
  const segment = pick(random, keysOf(objects, /^shop\/log\//));
  const record = pick(random, keysOf(objects, /^shop\/(generations|bases|heartbeats)\//));
  const body = bodyOf(objects, key);
  const ways: Readonly<Record<string, () => void>> = {
    truncate: () => set(objects, key, body.slice(0, random(body.length + 1))),
    extend: () => set(objects, key, Buffer.concat([body, new Uint8Array(40_000_000)])),
    flip() {
      body[random(body.length)]! ^= 1 << random(8);
      set(objects, key, body);
    },
    swap() {
      set(objects, key, bodyOf(objects, other));
      set(objects, other, body);
    },
    replay: () => set(objects, segment.replace(/\d{2}$/, "19"), bodyOf(objects, segment)),
    remove: () => void objects.delete(key),
    json: () => changeJson(random, objects, record),
    head: () => changeHead(random, objects, segment),
    bomb: () => putBomb(objects, segment, bomb, pick(random, [100, 8_000_000, 1e9])),
    names() {
      for (const name of ["../x", "log/1/../../x", `log/00000001/0000000/${"9".repeat(20)}`])
        set(objects, `shop/${name}`, body);
    },
    list() {
      const lie = pick(random, lies);
      server.misbehave = ({ operation }) =>
        operation === "list" ? { do: "answer", body: lie() } : null;
    },
    pour() {
      server.misbehave = ({ operation }) => (operation === "get" ? { do: "pour" } : null);
    },
  };
  if (isSlow) return misbehaveSlowly(random, server);
  // A change of JSON is twice as likely as the others.
  const way = pick(random, [...Object.keys(ways), "json"]);
  ways[way]?.();
  return `${way} ${key} ${segment} ${record}`;
}

const commands = ["restore --from", "archive check --archive-url", "serve --archive-url"];

test.skipIf(binary === "")(
  `commands end with one line when ${ROUNDS} archives or their storage were changed`,
  async () => {
    const settings = { ARCHIVE_URL: "s3://bucket/shop", ARCHIVE_COMMIT: "sync" };
    await using origin = await makePlace(settings);
    for (let start = 0; start < 2; start += 1) {
      const server = origin.start();
      const url = await urlOf(server);
      for (let at = 0; at < 5; at += 1) await createUser(url);
      await stop(server);
    }
    const bomb = Bun.zstdCompressSync(new Uint8Array(500e6));

    const rounds = [...Array(ROUNDS).keys()];
    await forEach(rounds, CONCURRENCY, async (round) => {
      await using storage = await startS3Server();
      using directory = makeDirectory();
      for (const [key, object] of origin.storage.objects) storage.objects.set(key, object);
      const what = mutate(makePicker(round).random, storage, bomb, isLong && round < 5);
      // The same objects in a directory.
      const isInDirectory = round % 4 === 3;
      for (const [key, { body }] of isInDirectory ? storage.objects : [])
        if (!key.includes("..")) await Bun.write(join(directory.path, key), body);
      const url = isInDirectory ? `file://${directory.at("shop")}` : settings.ARCHIVE_URL;
      await expectHarmless({
        what: `round ${round}: ${what}`,
        args: `${commands[round % commands.length]} ${url}`.split(" "),
        env: {
          ...storage.environment,
          ARCHIVE_COMMIT: "sync",
          ARCHIVE_RESTORE: "if-missing",
          API_TOKEN: token,
        },
        codes: [0, 1],
        made: /^a\.db/,
      });
    });
  },
  20_000 + ROUNDS * 10_000,
);
