/** Storage in a bucket of S3, or of a server with the same API. */
import { isKey, type ObjectStorage, type StoredObject } from "../domain/object-storage.ts";
import { createS3Client, NOT_S3, type S3Client, type S3Settings } from "./s3-client.ts";
import type { S3Problem } from "./s3-errors.ts";

/** Requests that delete objects at the same time. */
const CONCURRENT_DELETES = 8;

/** Size of the pages of one list together: those of 400,000 objects. */
const MAX_LIST_BYTES = 128 * 2 ** 20;
/** Time for a list, as a multiple of that for a request. */
const LIST_TIMEOUTS = 2;

const NO_END: S3Problem = { code: "unavailable", problem: "the list of objects does not end" };

const LIST_END = "</ListBucketResult>";

function parseObjects(xml: string): StoredObject[] {
  const [, ...contents] = xml.split("<Contents>");
  return contents.map((rest) => {
    const [fields = ""] = rest.split("</Contents>", 1);
    const field = (name: string) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(fields)?.[1];
    return { key: field("Key") ?? "", bytes: Number(field("Size")) };
  });
}

/** @returns the objects of one page, and where the next one begins; `null` on the last page */
async function listPage(
  { send, failure }: S3Client,
  start: string,
  after: string | null,
  token: string | null,
) {
  const response = await send("list", {
    key: null,
    query: { "continuation-token": token, "list-type": "2", prefix: start, "start-after": after },
  });
  const xml = new TextDecoder().decode(response ?? undefined);
  const next = /<NextContinuationToken>([^<]+)<\/NextContinuationToken>/.exec(xml)?.[1] ?? null;
  const isTruncated = /<IsTruncated>true<\/IsTruncated>/.test(xml);
  const objects = parseObjects(xml);
  const isComplete = objects.every(({ bytes }) => bytes >= 0);
  if (!xml.includes(LIST_END) || !isComplete || (isTruncated && next === null)) {
    throw failure("list", NOT_S3);
  }
  return { objects, next: isTruncated ? next : null, bytes: xml.length };
}

/** @see ObjectStorage.list */
async function listObjects(
  client: S3Client,
  start: string,
  limit = Number.POSITIVE_INFINITY,
  after = "",
): Promise<StoredObject[]> {
  const { below, failure, timeoutMs } = client;
  const afterKey = after === "" ? null : below + after;
  // A page may repeat what is on the one before, and servers need not sort.
  const found = new Map<string, StoredObject>();
  const deadlineMs = performance.now() + LIST_TIMEOUTS * timeoutMs;
  let token: string | null = null;
  let bytes = 0;
  do {
    const page = await listPage(client, below + start, afterKey, token);
    for (const { key, ...rest } of page.objects) {
      const own = key.slice(below.length);
      const isOurs = key.startsWith(below + start) && isKey(own);
      // Other keys may be encoded. A server may not know `start-after`.
      if (isOurs && own > after) found.set(own, { key: own, ...rest });
    }
    bytes += page.bytes;
    if (page.next !== null && (page.next === token || bytes > MAX_LIST_BYTES))
      throw failure("list", NOT_S3);
    if (page.next !== null && performance.now() > deadlineMs) throw failure("list", NO_END);
    token = page.next;
  } while (token !== null && found.size < limit);
  const some = [...found.values()].slice(0, limit);
  return some.sort((left, right) => (left.key < right.key ? -1 : 1));
}

export function createS3Storage(settings: S3Settings): ObjectStorage {
  const client = createS3Client(settings);
  const { failure, send, url } = client;
  return {
    url,
    get: (key, maxBytes) => send("read", { key, ...(maxBytes !== undefined && { maxBytes }) }),
    async put(key, body) {
      if ((await send("write to", { key, body })) === null) throw failure("write to", NOT_S3);
    },
    async create(key, body) {
      return (await send("write to", { key, body, headers: { "if-none-match": "*" } })) !== null;
    },
    list: (start, limit, after) => listObjects(client, start, limit, after),
    async remove(keys) {
      const rest = keys.values();
      const removeRest = async () => {
        for (const key of rest) await send("delete from", { key });
      };
      await Promise.all(Array.from({ length: CONCURRENT_DELETES }, removeRest));
    },
  };
}
