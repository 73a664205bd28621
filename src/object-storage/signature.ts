/** Signature Version 4 of AWS, which authenticates requests to S3. */
import type { MaybePromise } from "../base/maybe-promise.ts";

export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Only temporary credentials have one. */
  readonly sessionToken: string | null;
}

/** Called for each request, because credentials change. @throws {AppError} unavailable or operator */
export type CredentialsSource = () => MaybePromise<Credentials>;

interface UnsignedRequest {
  readonly method: string;
  /** Its path and its query are encoded with {@link encode}, and the names in the query are sorted. */
  readonly url: URL;
  /** Names are in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array<ArrayBuffer>;
}

function authenticate(key: string | Uint8Array, text: string): Buffer {
  return new Bun.CryptoHasher("sha256", key).update(text).digest();
}

/** Percent-encodes everything except the unreserved characters of RFC 3986. */
export function encode(text: string): string {
  const toHex = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replace(/[!'()*]/g, toHex);
}

/**
 * Signs a request with all of its headers, so that a proxy that drops a precondition makes it fail.
 * @returns the headers to send; `host` is that of the URL
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 */
export function sign(
  { method, url, headers, body }: UnsignedRequest,
  { accessKeyId, secretAccessKey, sessionToken }: Credentials,
  region: string,
  now: Date,
): Record<string, string> {
  const time = now.toISOString().replace(/[:-]|\.\d+/g, "");
  const date = time.slice(0, 8);
  const bodyHash = Bun.CryptoHasher.hash("sha256", body, "hex");
  const signed: Record<string, string> = {
    ...headers,
    host: url.host,
    "x-amz-content-sha256": bodyHash,
    "x-amz-date": time,
    ...(sessionToken !== null && { "x-amz-security-token": sessionToken }),
  };
  const names = Object.keys(signed).sort();
  const canonicalRequest = [
    method,
    url.pathname,
    url.search.slice(1),
    ...names.map((name) => `${name}:${signed[name]}`),
    "",
    names.join(";"),
    bodyHash,
  ].join("\n");
  const scope = `${date}/${region}/s3/aws4_request`;
  const requestHash = Bun.CryptoHasher.hash("sha256", canonicalRequest, "hex");
  const text = `AWS4-HMAC-SHA256\n${time}\n${scope}\n${requestHash}`;
  const key = [date, region, "s3", "aws4_request"].reduce<string | Uint8Array>(
    authenticate,
    `AWS4${secretAccessKey}`,
  );
  const signature = authenticate(key, text).toString("hex");
  return {
    ...signed,
    authorization: `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope}, SignedHeaders=${names.join(";")}, Signature=${signature}`,
  };
}
