/**
 * Storage in a bucket of S3, or of a server with the same API. Requests are made with `fetch`: Bun's own client sends
 * no preconditions, and has neither a timeout nor a signal.
 */
import { AppError } from "../base/error.ts";
import {
  isKey,
  MAX_OBJECT_BYTES,
  type ObjectStorage,
  type StoredObject,
} from "../domain/object-storage.ts";
import { codeOf, describeFailure, describeResponse, type S3Problem } from "./s3-errors.ts";
import { type Credentials, encode, sign } from "./signature.ts";

export interface S3Settings {
  readonly bucket: string;
  /** Empty, or without a slash at its ends. */
  readonly prefix: string;
  /** `null` for AWS. Without the bucket, as Bun's own client expects it. */
  readonly endpoint: string | null;
  readonly region: string;
  readonly credentials: Credentials;
  /** Time for a request and its response. */
  readonly timeoutMs: number;
}

/** The methods of requests, by what they are called in messages. */
const methods = { read: "GET", "write to": "PUT", list: "GET", "delete from": "DELETE" } as const;
type Action = keyof typeof methods;

interface S3Request {
  /** Below the prefix; `null` for the bucket itself. */
  readonly key: string | null;
  /** Sorted by name. */
  readonly query?: readonly (readonly [name: string, value: string])[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array<ArrayBuffer>;
  readonly maxBytes?: number;
}

/** Requests that delete objects at the same time. */
const CONCURRENT_DELETES = 8;

/** Size of the pages of one list together: those of 400,000 objects. */
const MAX_LIST_BYTES = 128 * 2 ** 20;
/** Time for a list, as a multiple of that for a request. */
const LIST_TIMEOUTS = 2;

const EMPTY = new Uint8Array();

/** E.g. a response without an entity tag. */
const NOT_S3: S3Problem = {
  code: "operator",
  problem: "the server does not respond like S3: check S3_ENDPOINT",
};

const NO_END: S3Problem = { code: "unavailable", problem: "the list of objects does not end" };

const LIST_END = "</ListBucketResult>";

/** @returns the URL of the bucket, without a slash at its end */
function bucketUrlOf({ bucket, endpoint, region }: S3Settings): string {
  if (endpoint !== null) return `${endpoint.replace(/\/+$/, "")}/${bucket}`;
  // The certificate of AWS does not cover names with more dots.
  return bucket.includes(".")
    ? `https://s3.${region}.amazonaws.com/${bucket}`
    : `https://${bucket}.s3.${region}.amazonaws.com`;
}

/** @returns the body, which is cut if it is longer */
async function readBody({ body }: Response, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body ?? []) {
    parts.push(part);
    bytes += part.length;
    if (bytes > maxBytes) break;
  }
  return Buffer.concat(parts);
}

function parseObjects(xml: string): StoredObject[] {
  const [, ...contents] = xml.split("<Contents>");
  return contents.map((rest) => {
    const [fields = ""] = rest.split("</Contents>", 1);
    const field = (name: string) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(fields)?.[1];
    return {
      key: field("Key") ?? "",
      bytes: Number(field("Size")),
      modifiedMs: Date.parse(field("LastModified") ?? ""),
    };
  });
}

export function createS3Storage(settings: S3Settings): ObjectStorage {
  const { bucket, prefix, region, credentials, timeoutMs } = settings;
  const below = prefix === "" ? "" : `${prefix}/`;
  const url = `s3://${bucket}${prefix === "" ? "" : `/${prefix}`}`;
  const bucketUrl = bucketUrlOf(settings);
  const { host } = new URL(bucketUrl);

  function failure(action: Action, { code, problem }: S3Problem): AppError {
    return new AppError(code, `Cannot ${action} ${url}: ${problem}`);
  }

  async function exchange(
    method: (typeof methods)[Action],
    { key, query = [], headers = {}, body = EMPTY, maxBytes = MAX_OBJECT_BYTES }: S3Request,
  ) {
    const path = key === null ? "" : below + key;
    const search = query.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
    const encodedPath = path.split("/").map(encode).join("/");
    const target = new URL(`${bucketUrl}/${encodedPath}${search === "" ? "" : `?${search}`}`);
    const signed = sign({ method, url: target, headers, body }, credentials, region, new Date());
    const response = await fetch(target, {
      method,
      // A compressed response would have another length.
      headers: { ...signed, "accept-encoding": "identity" },
      ...(method === "PUT" && { body }),
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { response, content: await readBody(response, maxBytes) };
  }

  /** @returns the body; `null` if the object exists, and must not, or does not exist */
  async function send(action: Action, request: S3Request): Promise<Uint8Array<ArrayBuffer> | null> {
    let exchanged: Awaited<ReturnType<typeof exchange>>;
    try {
      exchanged = await exchange(methods[action], request);
    } catch (error) {
      const isTimeout = error instanceof Error && error.name === "TimeoutError";
      throw failure(
        action,
        isTimeout
          ? { code: "unavailable", problem: `no response from ${host} in ${timeoutMs / 1000} s` }
          : describeFailure(error, host),
      );
    }
    const { response, content } = exchanged;
    const { status, headers } = response;
    if (status === 200 || status === 204) {
      const hasTag = headers.has("etag") || (action !== "read" && action !== "write to");
      if (!hasTag) throw failure(action, NOT_S3);
      return content;
    }
    const code = codeOf(new TextDecoder().decode(content));
    if (code === "NoSuchKey" || code === "PreconditionFailed") return null;
    const ownRegion = headers.get("x-amz-bucket-region");
    throw failure(action, describeResponse(status, code, ownRegion));
  }

  /** @returns the objects of one page, and where the next one begins; `null` on the last page */
  async function listPage(start: string, after: string | null, token: string | null) {
    const response = await send("list", {
      key: null,
      query: [
        ...(token === null ? [] : ([["continuation-token", token]] as const)),
        ["list-type", "2"],
        ["prefix", start],
        ...(after === null ? [] : ([["start-after", after]] as const)),
      ],
    });
    const xml = new TextDecoder().decode(response ?? EMPTY);
    const next = /<NextContinuationToken>([^<]+)<\/NextContinuationToken>/.exec(xml)?.[1] ?? null;
    const isTruncated = /<IsTruncated>true<\/IsTruncated>/.test(xml);
    const objects = parseObjects(xml);
    const isComplete = objects.every(({ bytes, modifiedMs }) => bytes >= 0 && modifiedMs > 0);
    if (!xml.includes(LIST_END) || !isComplete || (isTruncated && next === null)) {
      throw failure("list", NOT_S3);
    }
    return { objects, next: isTruncated ? next : null, bytes: xml.length };
  }

  return {
    url,
    get: (key, maxBytes) => send("read", { key, ...(maxBytes !== undefined && { maxBytes }) }),
    async put(key, body) {
      if ((await send("write to", { key, body })) === null) throw failure("write to", NOT_S3);
    },
    async create(key, body) {
      return (await send("write to", { key, body, headers: { "if-none-match": "*" } })) !== null;
    },
    async list(start, limit = Number.POSITIVE_INFINITY, after = "") {
      const afterKey = after === "" ? null : below + after;
      // A page may repeat what is on the one before, and servers need not sort.
      const found = new Map<string, StoredObject>();
      const deadlineMs = performance.now() + LIST_TIMEOUTS * timeoutMs;
      let token: string | null = null;
      let bytes = 0;
      do {
        const page: Awaited<ReturnType<typeof listPage>> = await listPage(
          below + start,
          afterKey,
          token,
        );
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
    },
    async remove(keys) {
      const rest = keys.values();
      const removeRest = async () => {
        for (const key of rest) await send("delete from", { key });
      };
      await Promise.all(Array.from({ length: CONCURRENT_DELETES }, removeRest));
    },
  };
}
