/**
 * Requests to a bucket of S3, or of a server with the same API. They are made with `fetch`: Bun's own client sends no
 * preconditions, and has neither a timeout nor a signal. `fetch` uses the proxy of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY.
 */
import { AppError, fail } from "../base/error.ts";
import { exchange } from "../base/exchange.ts";
import type { ObjectStorage, StoredObject } from "../domain/object-storage.ts";
import { isKey, MAX_OBJECT_BYTES, mapBounded } from "../domain/object-storage.ts";
import { describeFailure, describeResponse, fieldOf, type S3Problem } from "./s3-errors.ts";
import { type CredentialsSource, encode, sign } from "./signature.ts";

/** Size of one page of a list: those of AWS have 1,000 objects, with keys of at most 1 KiB. */
const MAX_PAGE_BYTES = 8 * 2 ** 20;
/** Size of the pages of one list together: those of 400,000 objects. */
const MAX_LIST_BYTES = 128 * 2 ** 20;
/** Time for a list, as a multiple of that for a request. */
const LIST_TIMEOUTS = 2;

interface S3Settings {
  readonly bucket: string;
  /** Empty, or without a slash at its ends. */
  readonly prefix: string;
  /** `null` for AWS. Without the bucket, as Bun's own client expects it. */
  readonly endpoint: string | null;
  readonly region: string;
  readonly credentials: CredentialsSource;
  readonly timeoutMs: number;
}

const methods = { read: "GET", "write to": "PUT", list: "GET", "delete from": "DELETE" } as const;
type Action = keyof typeof methods;

interface S3Request {
  /** Below the prefix; `null` for the bucket itself. */
  readonly key: string | null;
  /** Sorted by name, with those that are `null` left out. */
  readonly query?: Readonly<Record<string, string | null>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array<ArrayBuffer>;
  readonly maxBytes?: number;
}

/** E.g. a response without an entity tag. */
const NOT_S3: S3Problem = {
  code: "operator",
  problem: "the server does not respond like S3: check S3_ENDPOINT",
};

function bucketUrlOf({ bucket, endpoint, region }: S3Settings): string {
  if (endpoint !== null) return `${endpoint.replace(/\/+$/, "")}/${bucket}`;
  // The certificate of AWS does not cover names with more dots.
  return bucket.includes(".")
    ? `https://s3.${region}.amazonaws.com/${bucket}`
    : `https://${bucket}.s3.${region}.amazonaws.com`;
}

type S3Client = ReturnType<typeof createS3Client>;

function createS3Client(settings: S3Settings) {
  const { bucket, prefix, region, credentials, timeoutMs } = settings;
  const below = prefix === "" ? "" : `${prefix}/`;
  const url = `s3://${bucket}${prefix === "" ? "" : `/${prefix}`}`;
  const bucketUrl = bucketUrlOf(settings);
  const { host } = new URL(bucketUrl);

  function failure(action: Action, { code, problem }: S3Problem): AppError {
    return new AppError(code, `Cannot ${action} ${url}: ${problem}`);
  }

  async function request(method: (typeof methods)[Action], asked: S3Request) {
    const { key, query = {}, headers = {}, body = new Uint8Array() } = asked;
    const path = key === null ? "" : below + key;
    const parameters = Object.entries(query).flatMap(([name, value]) =>
      value === null ? [] : `${encode(name)}=${encode(value)}`,
    );
    const search = parameters.join("&");
    const encodedPath = path.split("/").map(encode).join("/");
    const target = new URL(`${bucketUrl}/${encodedPath}${search === "" ? "" : `?${search}`}`);
    const unsigned = { method, url: target, headers, body };
    const signed = sign(unsigned, await credentials(), region, new Date());
    // E.g. from a file whose lines end as on Windows.
    if (!/^[ -~]+$/.test(Object.values(signed).join("")))
      fail("operator", "S3_ACCESS_KEY_ID or another variable has a line end or is not ASCII");
    const init = { method, headers: signed, signal: AbortSignal.timeout(timeoutMs) };
    const withBody = method === "PUT" ? { ...init, body } : init;
    return exchange(target, withBody, asked.maxBytes ?? MAX_OBJECT_BYTES);
  }

  /** @returns the body; `null` if the object exists, and must not, or does not exist */
  async function send(action: Action, asked: S3Request): Promise<Uint8Array<ArrayBuffer> | null> {
    const { response, content } = await request(methods[action], asked).catch((error: unknown) => {
      throw failure(action, describeFailure(error, host, timeoutMs));
    });
    const { status, headers } = response;
    if (status === 200 || status === 204) {
      const hasTag = headers.has("etag") || (action !== "read" && action !== "write to");
      if (!hasTag) throw failure(action, NOT_S3);
      return content;
    }
    const text = new TextDecoder().decode(content);
    const code = fieldOf(text, "Code");
    // Servers and proxies give a failed precondition other codes, or none.
    const isRefused = status === 412 || code === "PreconditionFailed";
    if (action === "write to" ? isRefused : code === "NoSuchKey") return null;
    const ownRegion = headers.get("x-amz-bucket-region") ?? fieldOf(text, "Region");
    throw failure(action, describeResponse(status, code, ownRegion));
  }

  return { below, failure, send, timeoutMs, url };
}

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

async function listObjects(client: S3Client, ...given: Parameters<ObjectStorage["list"]>) {
  const [start, limit = Number.POSITIVE_INFINITY, after = "", pageSize] = given;
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
    get: (key, maxBytes = MAX_OBJECT_BYTES) => send("read", { key, maxBytes }),
    async put(key, body) {
      if ((await send("write to", { key, body })) === null) throw failure("write to", NOT_S3);
    },
    async create(key, body) {
      return (await send("write to", { key, body, headers: { "if-none-match": "*" } })) !== null;
    },
    list: (...args) => listObjects(client, ...args),
    async remove(keys) {
      await mapBounded(keys, (key) => send("delete from", { key }));
    },
  };
}
