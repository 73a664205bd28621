/** Opens the storage of a URL. */
import { fail } from "../base/error.ts";
import { type OpenStorage, parseStorageUrl } from "../domain/object-storage.ts";
import { openCredentials } from "./credentials.ts";
import { createDirectoryStorage } from "./directory.ts";
import { createS3Storage } from "./s3.ts";

type Environment = Readonly<Record<string, string | undefined>>;

const DEFAULT_REGION = "us-east-1";
/** A request that takes longer is sent again. A body has a few MiB. */
const TIMEOUT_MS = 10_000;

/** @returns `S3_…`, or else `AWS_…`, as Bun reads them; `null` if neither is set */
function readVariable(environment: Environment, name: string): string | null {
  return environment[`S3_${name}`] || environment[`AWS_${name}`] || null;
}

function readEndpoint(environment: Environment): string | null {
  const endpoint = readVariable(environment, "ENDPOINT");
  if (endpoint === null) return null;
  const url = URL.parse(endpoint);
  const isPlain =
    url?.username === "" && url.password === "" && url.search === "" && url.hash === "";
  // The value may contain a password.
  if (!isPlain || !/^https?:$/.test(url.protocol)) {
    fail("operator", "Invalid S3_ENDPOINT: must be a URL such as https://s3.example.com");
  }
  return endpoint;
}

/** @see OpenStorage */
export const openStorage: OpenStorage = (url, environment, timeoutMs = TIMEOUT_MS) => {
  const location = parseStorageUrl(url);
  if (location.kind === "directory") {
    return createDirectoryStorage({ path: location.path, timeoutMs });
  }
  const credentials = openCredentials(environment);
  if (credentials === null) {
    fail("operator", `Cannot use ${url}: S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY must be set`);
  }
  return createS3Storage({
    bucket: location.bucket,
    prefix: location.prefix,
    endpoint: readEndpoint(environment),
    region: readVariable(environment, "REGION") ?? DEFAULT_REGION,
    credentials,
    timeoutMs,
  });
};
