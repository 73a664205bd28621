/**
 * Verifies Signature Version 4 as a server does, from what is on the wire. It shares no code with the program.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";

export interface WireRequest {
  readonly method: string;
  /** Path and query, as they were sent. */
  readonly target: string;
  /** By name in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
}

export interface Account {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface Expected {
  readonly account: Account;
  readonly region: string;
  readonly nowMs: number;
}

const ALGORITHM = "AWS4-HMAC-SHA256";
const MAX_SKEW_MS = 15 * 60_000;

interface Authorization {
  readonly credential: string;
  readonly signedHeaders: string;
  readonly signature: string;
  readonly time: string;
  readonly token: string | undefined;
  readonly bodyHash: string;
}

function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac("sha256", key).update(text).digest();
}

function encodeByte(byte: number): string {
  const character = String.fromCharCode(byte);
  const hex = byte.toString(16).toUpperCase().padStart(2, "0");
  return /[A-Za-z0-9_.~-]/.test(character) ? character : `%${hex}`;
}

function reencode(part: string): string {
  return [...Buffer.from(decodeURIComponent(part))].map(encodeByte).join("");
}

function parseTime(time: string): number {
  const [, date, clock] = /^(\d{8})T(\d{6})Z$/.exec(time) ?? [];
  if (date === undefined || clock === undefined) return Number.NaN;
  const day = `${date.slice(0, 4)}-${date.slice(4, 6)}-${date.slice(6)}`;
  return Date.parse(`${day}T${clock.slice(0, 2)}:${clock.slice(2, 4)}:${clock.slice(4)}Z`);
}

function readAuthorization({ headers }: WireRequest): Authorization | null {
  const value = headers["authorization"] ?? "";
  if (!value.startsWith(`${ALGORITHM} `)) return null;
  const field = (name: string) => new RegExp(`${name}=([^,\\s]+)`).exec(value)?.[1] ?? "";
  return {
    credential: field("Credential"),
    signedHeaders: field("SignedHeaders"),
    signature: field("Signature"),
    time: headers["x-amz-date"] ?? "",
    token: headers["x-amz-security-token"],
    bodyHash: headers["x-amz-content-sha256"] ?? "",
  };
}

function canonicalRequest(request: WireRequest, path: string, query: string, auth: Authorization) {
  const parameters = query
    .split("&")
    .filter((each) => each !== "")
    .map((each) => {
      const [name = "", value = ""] = each.split("=", 2);
      return `${reencode(name)}=${reencode(value)}`;
    });
  const names = auth.signedHeaders.split(";");
  const lines = names.map((name) => {
    const value = (request.headers[name] ?? "").trim().replace(/ +/g, " ");
    return `${name}:${value}\n`;
  });
  return [
    request.method,
    path.split("/").map(reencode).join("/"),
    parameters.sort().join("&"),
    lines.join(""),
    auth.signedHeaders,
    auth.bodyHash,
  ].join("\n");
}

/** @returns the code of the error; `null` if the request is authentic */
export function verifySignature(request: WireRequest, expected: Expected): string | null {
  const { account, region, nowMs } = expected;
  const [path = "", query = ""] = request.target.split("?", 2);
  const auth = readAuthorization(request);
  if (auth === null) return "AccessDenied";
  const [accessKeyId, date = "", ownRegion = "", service, end] = auth.credential.split("/");
  if (accessKeyId !== account.accessKeyId) return "InvalidAccessKeyId";
  if (auth.token !== account.sessionToken) return "InvalidToken";
  if (ownRegion !== region || service !== "s3" || end !== "aws4_request") {
    return "AuthorizationHeaderMalformed";
  }
  const signed = auth.signedHeaders.split(";");
  const mustBeSigned = [
    "host",
    ...Object.keys(request.headers).filter((n) => n.startsWith("x-amz-")),
  ];
  if (!mustBeSigned.every((name) => signed.includes(name))) return "AccessDenied";

  const scope = `${date}/${region}/s3/aws4_request`;
  const canonical = canonicalRequest(request, path, query, auth);
  const text = [ALGORITHM, auth.time, scope, sha256(canonical)].join("\n");
  const dateKey = hmac(`AWS4${account.secretAccessKey}`, date);
  const signingKey = hmac(hmac(hmac(dateKey, region), "s3"), "aws4_request");
  const correct = hmac(signingKey, text);
  const signature = Buffer.from(auth.signature, "hex");
  if (signature.length !== correct.length || !timingSafeEqual(signature, correct)) {
    return "SignatureDoesNotMatch";
  }
  const isNow = Math.abs(nowMs - parseTime(auth.time)) <= MAX_SKEW_MS;
  if (!auth.time.startsWith(date) || !isNow) return "RequestTimeTooSkewed";
  return auth.bodyHash === sha256(request.body) ? null : "XAmzContentSHA256Mismatch";
}
