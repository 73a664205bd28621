// Commands that read an archive whose objects were changed, or whose storage lies: they end, with one line, in little
// memory, and write nothing but the database.
import { join } from "node:path";
import { decodeJson, encodeJson } from "../../src/sqlite/archive/format.ts";
import { type S3Server, startS3Server } from "../object-storage/s3-server.ts";
import { makeDirectory } from "../support/directory.ts";
import { createUser, makePlace, stop, token, urlOf } from "./archived-place.ts";
import { expectHarmless, forEachInput, makePicker } from "./hostile.ts";
import { test } from "./on-binary.ts";

/** Numbers, texts and values that no archive has. */
const strange: readonly unknown[] = [
  ...[-1, 0.5, 1e15, 1e300, null, "../../../escaped", "", [], {}],
  { generation: 1e9, number: -1 },
  [{ bytes: 1e15, sha256: "" }],
];

type Json = Readonly<Record<string, unknown>>;

/** Changes the bodies of some objects. @param bomb expands to 500 MB @returns what was changed */
function mutate(seed: number, objects: S3Server["objects"], bomb: Uint8Array): string {
  const { random, pick } = makePicker(seed);
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
    truncate: () => set(key, body.subarray(0, random(body.length + 1))),
    extend: () => set(key, Buffer.concat([body, new Uint8Array(40_000_000)])),
    flip() {
      body[random(body.length)]! ^= 1 << random(8);
      set(key, body);
    },
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
  // Records have the most values. The numbers of ways, lies and commands have no common divisor.
  const names = [...Object.keys(ways), "record"];
  const way = `${names[seed % names.length]}`;
  ways[way]?.();
  return `${way} ${key} ${segment} ${record}`;
}

/** Lies of a storage. The first one is for a short run: the others take 20 s to be recognized. */
const lies: readonly S3Server["misbehave"][] = [
  ({ operation }) => (operation === "get" ? { do: "pour" } : null),
  () => ({ do: "drip" }),
  ({ operation }) => {
    const id = crypto.randomUUID();
    const next = `<IsTruncated>true</IsTruncated><NextContinuationToken>${id}</NextContinuationToken>`;
    const entry = `<Key>shop/generations/${id}</Key><LastModified>2026-11-01</LastModified><Size>9</Size>`;
    const body = `<ListBucketResult>${next}<Contents>${entry}</Contents></ListBucketResult>`;
    return operation === "list" ? { do: "answer", body } : null;
  },
];
const commands = ["restore --from", "archive check --archive-url", "serve --archive-url"];

test("commands end with one line when archives or their storage were changed", async () => {
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
    storage.misbehave = lies[seed % 14] ?? (() => null);
    // The same objects in a directory.
    const isInDirectory = seed % 4 === 3;
    for (const [key, { body }] of isInDirectory ? storage.objects : [])
      if (!key.includes("..")) await Bun.write(join(directory.path, key), body);
    const url = isInDirectory ? `file://${directory.at("shop")}` : settings.ARCHIVE_URL;
    await expectHarmless({
      what: `${seed}: ${what}`,
      args: `${commands[seed % commands.length]} ${url}`.split(" "),
      env: {
        ...storage.environment,
        ...{ ARCHIVE_COMMIT: "sync", ARCHIVE_RESTORE: "if-missing", API_TOKEN: token },
      },
      codes: [0, 1],
      made: /^a\.db/,
    });
  });
});
