/** Keys of the environment, or temporary ones of the role that a container or a machine of AWS has. */
import { AppError, fail, messageOf } from "../base/error.ts";
import { exchange } from "../base/exchange.ts";
import { type Environment, readSecret } from "../base/secret.ts";
import { describeFailure } from "./s3-errors.ts";
import type { Credentials, CredentialsSource } from "./signature.ts";

interface RoleCredentials extends Credentials {
  readonly expiresMs: number;
}

/** @throws {AppError} unavailable, naming the host */
type LoadRole = () => Promise<RoleCredentials>;

const [TIMEOUT_MS, MAX_BYTES] = [2000, 2 ** 16];

/** New credentials exist at least this long before the old ones expire. */
const RENEW_MS = 5 * 60_000;
const RETRY_MS = 5000;

/** Addresses of this machine and of its link. Everything else could be read on the way. */
const LOCAL_HOST =
  /^(?:localhost|127(?:\.\d+){3}|169\.254(?:\.\d+){2}|\[(?:::1|fd00:ec2::23|fd00:ec2::254)\])$/;

function readEndpoint(variable: string, text: string): URL {
  const url = URL.parse(text);
  const isLocal = url?.protocol === "http:" && LOCAL_HOST.test(url.hostname);
  if (url !== null && (isLocal || url.protocol === "https:")) return url;
  const problem = "must be https://…, or http://… with an address of this machine or its link";
  fail("operator", `Invalid ${variable}: ${problem}`);
}

/** @returns the body of the response. A proxy is another machine, with another role */
async function ask(url: URL, headers: Record<string, string>, method = "GET"): Promise<string> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const init = { method, headers, proxy: false, signal } as const;
  const { response, content } = await exchange(url, init, MAX_BYTES).catch((error) =>
    fail("unavailable", describeFailure(error, url.host, TIMEOUT_MS).problem),
  );
  if (response.status === 200) return new TextDecoder().decode(content);
  fail("unavailable", `${url.host} responded with an error (${response.status})`);
}

async function askCredentials(url: URL, headers: Record<string, string>): Promise<RoleCredentials> {
  const text = await ask(url, headers);
  try {
    const names = ["AccessKeyId", "SecretAccessKey", "Token", "Expiration"];
    const parsed = JSON.parse(text);
    const values = names.map((name) => parsed[name]);
    const [accessKeyId, secretAccessKey, sessionToken, expiration] = values;
    const expiresMs = Date.parse(expiration);
    const isComplete = values.every((value) => typeof value === "string" && value !== "");
    if (isComplete && expiresMs > 0)
      return { accessKeyId, secretAccessKey, sessionToken, expiresMs };
  } catch {}
  fail("unavailable", `${url.host} responded without credentials`);
}

/** @see https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html */
function ofContainer(environment: Environment): LoadRole | null {
  const name = "AWS_CONTAINER_CREDENTIALS";
  const { [`${name}_RELATIVE_URI`]: relative, [`${name}_FULL_URI`]: full } = environment;
  if (!relative && !full) return null;
  const url = relative
    ? readEndpoint(`${name}_RELATIVE_URI`, `http://169.254.170.2${relative}`)
    : readEndpoint(`${name}_FULL_URI`, full ?? "");
  return async () => {
    // Its file is rewritten while the server runs.
    const authorization = readSecret(environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    return askCredentials(url, authorization === null ? {} : { authorization });
  };
}

/** Version 2 of the metadata service. @see https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-v2-how-it-works.html */
function ofMachine(environment: Environment): LoadRole | null {
  if (environment["AWS_EC2_METADATA_DISABLED"]?.toLowerCase() === "true") return null;
  const name = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
  const base = readEndpoint(name, environment[name] || "http://169.254.169.254");
  return async () => {
    const ttl = { "x-aws-ec2-metadata-token-ttl-seconds": "300" };
    const token = await ask(new URL("/latest/api/token", base), ttl, "PUT");
    const headers = { "x-aws-ec2-metadata-token": token };
    const roles = new URL("/latest/meta-data/iam/security-credentials/", base);
    const [role = ""] = (await ask(roles, headers)).split("\n", 1);
    return askCredentials(new URL(encodeURIComponent(role), roles), headers);
  };
}

/** Renews credentials before they expire. Until then the old ones are used, also while a renewal fails. */
function renewing(load: LoadRole, nowMs: () => number): CredentialsSource {
  let current: RoleCredentials | null = null;
  let renewal: Promise<RoleCredentials>;
  let nextMs = Number.NEGATIVE_INFINITY;

  async function renew(): Promise<RoleCredentials> {
    nextMs = Number.POSITIVE_INFINITY;
    try {
      current = await load();
      return current;
    } catch (error) {
      const problem =
        "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY are not set, and no role was found";
      // A server that has never had credentials does not start.
      const code = current === null ? "operator" : "unavailable";
      throw new AppError(code, `${problem}: ${messageOf(error)}`);
    } finally {
      nextMs = Math.max(nowMs() + RETRY_MS, (current?.expiresMs ?? 0) - RENEW_MS);
    }
  }

  return async () => {
    if (nowMs() >= nextMs) renewal = renew();
    renewal.catch(() => {});
    return current !== null && nowMs() < current.expiresMs ? current : renewal;
  };
}

const MUST_BE_SET = "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY must be set";

/** @returns `null` if no key is set. @throws {AppError} operator if one of two is set, or a file cannot be read */
function readKeys(environment: Environment): Credentials | null {
  const read = (name: string) =>
    readSecret(environment, `S3_${name}`) ?? (environment[`AWS_${name}`] || null);
  const accessKeyId = read("ACCESS_KEY_ID");
  const secretAccessKey = read("SECRET_ACCESS_KEY");
  if (accessKeyId === null && secretAccessKey === null) return null;
  if (accessKeyId === null || secretAccessKey === null) fail("operator", MUST_BE_SET);
  return { accessKeyId, secretAccessKey, sessionToken: read("SESSION_TOKEN") };
}

/**
 * Keys take precedence over a role. Files are read again, as keys are rotated; one that is missing then, or half written, is
 * no error. @throws {AppError} operator if there is neither, or a variable is invalid
 */
export function openCredentials(environment: Environment, nowMs = Date.now): CredentialsSource {
  const keys = readKeys(environment);
  if (keys === null) {
    const load = ofContainer(environment) ?? ofMachine(environment);
    return load === null ? fail("operator", MUST_BE_SET) : renewing(load, nowMs);
  }
  let last = keys;
  return () => {
    try {
      last = readKeys(environment) ?? last;
    } catch {}
    return last;
  };
}
