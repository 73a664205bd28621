import {
  isKey,
  mapBounded,
  type ObjectStorage,
  type StoredObject,
} from "../domain/object-storage.ts";
import { createS3Client, NOT_S3, type S3Client, type S3Settings } from "./s3-client.ts";
import { fieldOf } from "./s3-errors.ts";

const CONCURRENT_DELETES = 8;

/** Size of one page of a list: those of AWS have 1,000 objects, with keys of at most 1 KiB. */
const MAX_PAGE_BYTES = 8 * 2 ** 20;
/** Size of the pages of one list together: those of 400,000 objects. */
const MAX_LIST_BYTES = 128 * 2 ** 20;
/** Time for a list, as a multiple of that for a request. */
const LIST_TIMEOUTS = 2;

function parseObjects(xml: string): StoredObject[] {
  const [, ...contents] = xml.split("<Contents>");
  return contents.map((rest) => {
    const [fields = ""] = rest.split("</Contents>", 1);
    return { key: fieldOf(fields, "Key", "[^<]*"), bytes: Number(fieldOf(fields, "Size") || NaN) };
  });
}

/** @returns the objects of one page, and where the next one begins; `null` on the last page */
async function listPage({ send, failure }: S3Client, query: Record<string, string | null>) {
  const content = await send("list", { key: null, query, maxBytes: MAX_PAGE_BYTES });
  const text = new TextDecoder().decode(content ?? undefined);
  // Without namespaces and attributes. Most tags have none, and are not matched.
  const xml = text.replace(/<(\/?)(?:[\w.-]+:(\w+)(?:\s[^<>]*)?|(\w+)\s[^<>]*)>/g, "<$1$2$3>");
  const next = fieldOf(xml, "NextContinuationToken", "[^<]+") || null;
  const isTruncated = (fieldOf(xml, "IsTruncated") || `${next !== null}`) !== "false";
  const objects = parseObjects(xml);
  const isCounted = Number(fieldOf(xml, "KeyCount") || objects.length) === objects.length;
  // What is not known, e.g. how a key without the prefix is encoded, is not taken for nothing.
  const isRead = ({ key, bytes }: StoredObject) =>
    key.startsWith(`${query["prefix"]}`) && bytes >= 0;
  const isComplete = xml.includes("</ListBucketResult>") && isCounted && objects.every(isRead);
  if (!isComplete || (isTruncated && next === null)) throw failure("list", NOT_S3);
  return { objects, next: isTruncated ? next : null, bytes: xml.length };
}

async function listObjects(
  client: S3Client,
  start: string,
  limit = Number.POSITIVE_INFINITY,
  after = "",
  pageSize?: number,
): Promise<StoredObject[]> {
  const { below, failure, timeoutMs } = client;
  const afterKey = after === "" ? null : below + after;
  // A page may repeat what is on the one before, and servers need not sort.
  const found = new Map<string, StoredObject>();
  const deadlineMs = performance.now() + LIST_TIMEOUTS * timeoutMs;
  let token: string | null = null;
  let bytes = 0;
  do {
    const page = await listPage(client, {
      "continuation-token": token,
      "list-type": "2",
      "max-keys": pageSize === undefined ? null : `${pageSize}`,
      prefix: below + start,
      "start-after": afterKey,
    });
    for (const { key, ...rest } of page.objects) {
      const own = key.slice(below.length);
      // A server may not know `start-after`.
      if (isKey(own) && own > after) found.set(own, { key: own, ...rest });
    }
    bytes += page.bytes;
    if (page.next !== null && (page.next === token || bytes > MAX_LIST_BYTES))
      throw failure("list", NOT_S3);
    if (page.next !== null && performance.now() > deadlineMs)
      throw failure("list", { code: "unavailable", problem: "the list of objects does not end" });
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
    list: (...args) => listObjects(client, ...args),
    async remove(keys) {
      await mapBounded(keys, (key) => send("delete from", { key }), CONCURRENT_DELETES);
    },
  };
}
