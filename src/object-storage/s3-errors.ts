/** Errors of S3 as sentences for the operator. They never repeat what the server says, which may name keys. */
import { AppError, connectionProblem, systemCode } from "../base/error.ts";

export interface S3Problem {
  readonly code: "operator" | "unavailable";
  readonly problem: string;
}

const credentials = "check S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY";

/** By the code of the response. Those of other servers than AWS are included. */
const operatorProblems: Readonly<Record<string, string>> = {
  InvalidAccessKeyId: `the access key does not exist: ${credentials}`,
  SignatureDoesNotMatch: `the secret key is wrong: ${credentials}`,
  ExpiredToken: "the credentials have expired",
  InvalidToken: "the session token is not valid: check S3_SESSION_TOKEN",
  AccessDenied: "the credentials have no permission for this",
  NoSuchBucket: "the bucket does not exist",
  RequestTimeTooSkewed: "the clock of this machine is wrong by several minutes",
  NotImplemented: "the server does not support conditional writes",
};

const WRONG_REGION = /^(AuthorizationHeaderMalformed|IllegalLocationConstraintException)$/;
/** E.g. XMinioStorageFull, BucketQuotaExceeded. */
const FULL = /Quota|Insufficient|Full/;

/** @returns the text of the first element with this name; empty if there is none that matches the pattern */
export function fieldOf(xml: string, name: string, pattern = "[\\w-]{1,64}"): string {
  return new RegExp(`<${name}>(${pattern})</${name}>`).exec(xml)?.[1] ?? "";
}

/** @param region in which the server says the bucket is; empty if it does not say it */
export function describeResponse(status: number, code: string, region: string): S3Problem {
  const shown = code === "" ? "" : ` ${code}`;
  const say = (kind: S3Problem["code"], problem: string): S3Problem => ({
    code: kind,
    problem: `${problem} (${status}${shown})`,
  });
  const known = operatorProblems[code];
  if (known !== undefined) return say("operator", known);
  if (WRONG_REGION.test(code) || (status >= 300 && status < 400)) {
    const advice = /^[\w-]+$/.test(region) ? `to ${region}` : "and S3_ENDPOINT";
    return say("operator", `the bucket is in another region: set S3_REGION ${advice}`);
  }
  if (FULL.test(code) || status === 507) return say("unavailable", "the storage is full");
  if (code === "SlowDown" || status === 429 || status === 503)
    return say("unavailable", "the server asks for fewer requests");
  // 408: the body came too slowly. 409: another conditional write was under way.
  const mayPass = status >= 500 || status === 408 || status === 409;
  return say(mayPass ? "unavailable" : "operator", "the server responded with an error");
}

export function describeFailure(error: unknown, host: string, timeoutMs: number): S3Problem {
  if (error instanceof AppError) {
    const code = error.code === "operator" ? "operator" : "unavailable";
    return { code, problem: error.message };
  }
  if (error instanceof Error && error.name === "TimeoutError")
    return { code: "unavailable", problem: `no response from ${host} in ${timeoutMs / 1000} s` };
  const code = systemCode(error);
  // E.g. DEPTH_ZERO_SELF_SIGNED_CERT.
  if (/^\w*(?:CERT|SIGNATURE)\w*$/.test(code)) {
    const problem = `the certificate of ${host} is not valid or not trusted (${code})`;
    return { code: "operator", problem };
  }
  const problem = connectionProblem(error) ?? (/^\w+$/.test(code) ? code : "unknown error");
  return { code: "unavailable", problem: `cannot reach ${host}: ${problem}` };
}
