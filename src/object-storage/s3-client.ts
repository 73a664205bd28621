/**
 * Requests to a bucket of S3, or of a server with the same API. They are made with `fetch`: Bun's own client sends no
 * preconditions, and has neither a timeout nor a signal. `fetch` uses the proxy of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY.
 */
import { AppError, fail } from "../base/error.ts";
import { MAX_OBJECT_BYTES } from "../domain/object-storage.ts";
import { exchange } from "./exchange.ts";
import { describeFailure, describeResponse, fieldOf, type S3Problem } from "./s3-errors.ts";
import { type CredentialsSource, encode, sign } from "./signature.ts";

export interface S3Settings {
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
export const NOT_S3: S3Problem = {
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

export type S3Client = ReturnType<typeof createS3Client>;

export function createS3Client(settings: S3Settings) {
  const { bucket, prefix, region, credentials, timeoutMs } = settings;
  const below = prefix === "" ? "" : `${prefix}/`;
  const url = `s3://${bucket}${prefix === "" ? "" : `/${prefix}`}`;
  const bucketUrl = bucketUrlOf(settings);
  const { host } = new URL(bucketUrl);

  function failure(action: Action, { code, problem }: S3Problem): AppError {
    return new AppError(code, `Cannot ${action} ${url}: ${problem}`);
  }

  async function request(
    method: (typeof methods)[Action],
    {
      key,
      query = {},
      headers = {},
      body = new Uint8Array(),
      maxBytes = MAX_OBJECT_BYTES,
    }: S3Request,
  ) {
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
    const init = { method, headers: signed };
    const withBody = method === "PUT" ? { ...init, body } : init;
    return exchange(target, withBody, timeoutMs, maxBytes);
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
