/**
 * A server with the part of the S3 API that the program uses: it verifies signatures, has preconditions and pages, and
 * misbehaves on request.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { type Credentials, sign } from "../../src/object-storage/signature.ts";

interface S3Call {
  readonly operation: "get" | "put" | "delete" | "list";
  /** Key in the bucket, or the prefix of a list. */
  readonly key: string;
}

type Misbehaviour =
  | { readonly do: "fail"; readonly status: number; readonly code: string }
  | { readonly do: "refuse" | "stall" | "cut" }
  | { readonly do: "rewrite"; readonly rewrite: (body: string) => string }
  | { readonly do: "answer"; readonly body: string | Uint8Array }
  /** Begins a body that never ends, as fast as it is read, or one byte after the other. */
  | { readonly do: "pour" | "drip" };

interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

type Account = Omit<Credentials, "sessionToken"> & { readonly sessionToken?: string };

export const testAccount: Account = {
  accessKeyId: "TESTACCESSKEY",
  secretAccessKey: "hidden/secret+key",
};

/**
 * Signs again what has arrived: signature.test.ts compares the signatures of the program with those of AWS.
 * @returns the code of the error; `null` if the request is authentic
 */
function refusalOf(
  { method = "", url = "", headers }: IncomingMessage,
  body: Uint8Array<ArrayBuffer>,
  account: Account,
  region: string,
): string | null {
  const { sessionToken = null } = account;
  const { authorization = "", host = "" } = headers;
  const [, keyId, ownRegion, names = ""] =
    /Credential=([^/]*)\/\d+\/([^/]*)\/s3\/.*SignedHeaders=([^,]*)/.exec(authorization) ?? [];
  if (keyId !== account.accessKeyId) return "InvalidAccessKeyId";
  if ((headers["x-amz-security-token"] ?? null) !== sessionToken) return "InvalidToken";
  if (ownRegion !== region) return "AuthorizationHeaderMalformed";
  const signed = names.split(";").map((name) => [name, headers[name] as string] as const);
  const time = `${headers["x-amz-date"]}`.replace(/(..)(..)T(..)(..)(..)Z$/, "-$1-$2T$3:$4:$5Z");
  const { authorization: expected } = sign(
    { method, url: new URL(`http://${host}${url}`), headers: Object.fromEntries(signed), body },
    { ...account, sessionToken },
    region,
    new Date(time),
  );
  return authorization === expected ? null : "SignatureDoesNotMatch";
}

function errorReply(status: number, code: string, region = ""): Reply {
  const message = "A message that names TESTACCESSKEY and hidden/secret+key";
  const xml = `<?xml version="1.0"?><Error><Code>${code}</Code><Message>${message}</Message><Region>${region}</Region></Error>`;
  // Whoever is sent to another server would give it the credentials, and the body is not compressed.
  const headers = { location: "http://127.0.0.1:1/", "content-encoding": "gzip" };
  return { status, headers, body: xml };
}

export type S3Server = Awaited<ReturnType<typeof startS3Server>>;

export async function startS3Server({
  account = testAccount,
  bucket = "bucket",
  region = "us-east-1",
  pageSize = 1000,
} = {}) {
  const objects = new Map<string, Record<"tag" | "modified", string> & { body: Uint8Array }>();

  function put(key: string, body: Uint8Array, headers: IncomingMessage["headers"]): Reply {
    if (headers["if-none-match"] === "*" && objects.has(key))
      return errorReply(412, "PreconditionFailed");
    const tag = `"${createHash("md5").update(body).digest("hex")}"`;
    objects.set(key, { body, tag, modified: new Date().toISOString() });
    return { status: 200, headers: { etag: tag } };
  }

  function list(query: URLSearchParams): Reply {
    const prefix = query.get("prefix") ?? "";
    const start = query.get("continuation-token") ?? query.get("start-after") ?? "";
    const found = [...objects].filter(([key]) => key.startsWith(prefix) && key > start).sort();
    const page = found.slice(0, Number(query.get("max-keys") ?? pageSize));
    const last = page.at(-1)?.[0];
    const isLast = page.length === found.length;
    const contents = page.map(
      ([key, { body, modified, tag }]) =>
        `<Contents><Key>${key}</Key><LastModified>${modified}</LastModified><ETag>${tag}</ETag><Size>${body.length}</Size></Contents>`,
    );
    const next = isLast ? "" : `<NextContinuationToken>${last}</NextContinuationToken>`;
    const head = `<KeyCount>${page.length}</KeyCount><IsTruncated>${!isLast}</IsTruncated>${next}`;
    const body = `<?xml version="1.0"?>\n<ListBucketResult>${head}${contents.join("")}</ListBucketResult>`;
    return { status: 200, body };
  }

  function get(key: string): Reply {
    const found = objects.get(key);
    if (found === undefined) return errorReply(404, "NoSuchKey");
    return { status: 200, headers: { etag: found.tag }, body: found.body };
  }

  function reply(
    response: ServerResponse,
    { status, headers = {}, body = "" }: Reply,
    isCut = false,
  ) {
    const bytes = Buffer.from(body);
    response.writeHead(status, { ...headers, "content-length": bytes.length });
    if (isCut)
      response.write(bytes.subarray(0, bytes.length / 2), () => response.socket?.destroy());
    else response.end(bytes);
  }

  async function neverEnd(response: ServerResponse, part: Uint8Array, pauseMs: number) {
    response.writeHead(200, { etag: '"endless"' });
    while (!response.destroyed) {
      response.write(part);
      await Bun.sleep(pauseMs);
    }
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "", url: target = "" } = request;
    const body = new Uint8Array(await buffer(request));
    const code = refusalOf(request, body, account, region);
    if (code !== null) {
      const status = code === "AuthorizationHeaderMalformed" ? 400 : 403;
      return void reply(response, errorReply(status, code, region));
    }
    const { pathname, searchParams } = new URL(target, "http://host");
    const path = decodeURIComponent(pathname);
    const [, name, key = ""] = /^\/([^/]*)\/?(.*)$/s.exec(path) ?? [];
    if (name !== bucket) return void reply(response, errorReply(404, "NoSuchBucket"));
    const operation = key === "" ? "list" : (method.toLowerCase() as S3Call["operation"]);
    const call: S3Call = { operation, key: key === "" ? (searchParams.get("prefix") ?? "") : key };
    const fault = server.misbehave(call);
    const run: () => Reply = {
      get: () => get(key),
      put: () => put(key, body, request.headers),
      delete() {
        objects.delete(key);
        return { status: 204 };
      },
      list: () => list(searchParams),
    }[operation];
    switch (fault?.do) {
      case "fail":
        return void reply(response, errorReply(fault.status, fault.code));
      case "refuse":
        return void response.socket?.destroy();
      case "stall":
        return;
      case "rewrite":
        return void reply(response, { ...run(), body: fault.rewrite(`${run().body}`) });
      case "answer":
        return void reply(response, { status: 200, body: fault.body });
      case "pour":
        return neverEnd(response, new Uint8Array(2 ** 20), 1);
      case "drip":
        return neverEnd(response, new Uint8Array(1), 20);
      default:
        return void reply(response, run(), fault?.do === "cut");
    }
  }

  const listener = createServer((request, response) => {
    handle(request, response).catch(() => response.socket?.destroy());
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port } = listener.address() as AddressInfo;
  const environment: Readonly<Record<string, string>> = {
    S3_ACCESS_KEY_ID: account.accessKeyId,
    S3_SECRET_ACCESS_KEY: account.secretAccessKey,
    S3_ENDPOINT: `http://127.0.0.1:${port}`,
    S3_REGION: region,
    ...(account.sessionToken !== undefined && { S3_SESSION_TOKEN: account.sessionToken }),
  };
  const server = {
    port,
    environment,
    objects,
    /** How to treat a request; `null` for as it should be. */
    misbehave: (_: S3Call): Misbehaviour | null => null,
    async [Symbol.asyncDispose]() {
      listener.closeAllConnections();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
  return server;
}
