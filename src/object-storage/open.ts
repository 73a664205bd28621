import { fail } from "../base/error.ts";
import type { Environment } from "../base/secret.ts";
import { type OpenStorage, parseStorageUrl } from "../domain/object-storage.ts";
import { openCredentials } from "./credentials.ts";
import { createDirectoryStorage } from "./directory.ts";
import { encrypted } from "./encrypted.ts";
import { createS3Storage } from "./s3.ts";

/** A request that takes longer is sent again. A body has a few MiB. */
const TIMEOUT_MS = 10_000;

/** The first one that is set counts. */
const endpoints = ["S3_ENDPOINT", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
const regions = ["S3_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"];

function firstOf(environment: Environment, names: readonly string[]) {
  const name = names.find((each) => environment[each]);
  return { name, value: (name && environment[name]) || null };
}

function readEndpoint(environment: Environment): string | null {
  const { name, value: endpoint } = firstOf(environment, endpoints);
  if (endpoint === null) return null;
  const url = URL.parse(endpoint);
  const isPlain =
    url?.username === "" && url.password === "" && url.search === "" && url.hash === "";
  // The value may contain a password.
  if (!isPlain || !/^https?:$/.test(url.protocol))
    fail("operator", `Invalid ${name}: must be a URL such as https://s3.example.com`);
  return endpoint;
}

export const openStorage: OpenStorage = (url, environment, timeoutMs = TIMEOUT_MS) => {
  const location = parseStorageUrl(url);
  const storage =
    location.kind === "directory"
      ? createDirectoryStorage(location.path, timeoutMs)
      : createS3Storage({
          bucket: location.bucket,
          prefix: location.prefix,
          endpoint: readEndpoint(environment),
          region: firstOf(environment, regions).value ?? "us-east-1",
          credentials: openCredentials(environment),
          timeoutMs,
        });
  return encrypted(storage, environment);
};
