import { fail } from "../base/error.ts";
import { type Environment, readSecret } from "../base/secret.ts";
import { openRole } from "./roles.ts";
import type { Credentials, CredentialsSource } from "./signature.ts";

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
 * Keys take precedence over a role. Files are read again, because keys are rotated while a server runs. One that is missing
 * meanwhile, or half written, is no error: the keys before are used.
 * @throws {AppError} operator if there is neither, or a variable is invalid
 */
export function openCredentials(environment: Environment, nowMs = Date.now): CredentialsSource {
  const keys = readKeys(environment);
  if (keys === null) return openRole(environment, nowMs) ?? fail("operator", MUST_BE_SET);
  let last = keys;
  return () => {
    try {
      last = readKeys(environment) ?? last;
    } catch {}
    return last;
  };
}
