/** Where the credentials of S3 come from. */
import { readSecret } from "../base/secret.ts";
import type { Credentials } from "./signature.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Called for each request. */
export type CredentialsSource = () => Credentials;

/** Files are read again at most this often. */
const READ_AGAIN_MS = 1000;

/** @returns `null` if there are no keys. @throws {AppError} operator if a file cannot be read */
function readKeys(environment: Environment): Credentials | null {
  const read = (name: string) =>
    readSecret(environment, `S3_${name}`) ?? (environment[`AWS_${name}`] || null);
  const accessKeyId = read("ACCESS_KEY_ID");
  const secretAccessKey = read("SECRET_ACCESS_KEY");
  if (accessKeyId === null || secretAccessKey === null) return null;
  return { accessKeyId, secretAccessKey, sessionToken: read("SESSION_TOKEN") };
}

/**
 * Reads files again, because keys are rotated while a server runs. A file that is missing meanwhile, or half written, is
 * no error: the keys before are used.
 * @returns `null` if there are no keys
 * @throws {AppError} operator if a file cannot be read now
 */
export function openCredentials(
  environment: Environment,
  nowMs = () => performance.now(),
): CredentialsSource | null {
  const keys = readKeys(environment);
  if (keys === null) return null;
  const last = { keys, readMs: nowMs() };
  return () => {
    if (nowMs() - last.readMs < READ_AGAIN_MS) return last.keys;
    last.readMs = nowMs();
    try {
      last.keys = readKeys(environment) ?? last.keys;
    } catch {}
    return last.keys;
  };
}
