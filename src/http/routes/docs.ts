/** The interactive reference: a page with Swagger UI. All of its assets are embedded in the binary. */
import swaggerStyle from "swagger-ui-dist/swagger-ui.css.br" with { type: "file" };
import swaggerScript from "swagger-ui-dist/swagger-ui-bundle.js.br" with { type: "file" };
import pageStyle from "../docs/page.css" with { type: "file" };
import page from "../docs/page.html" with { type: "file" };
import pageScript from "../docs/page.js" with { type: "file" };
import type { UncheckedCall } from "../input/call.ts";
import { noQuery } from "../input/query.ts";
import { docsPath } from "../output/errors.ts";
import { route, routesAt } from "./route.ts";

interface Asset {
  readonly path: string;
  /** The file: in the binary, or on disk when run from source. */
  readonly file: string;
  readonly type: string;
  /** Whether `scripts/assets.ts` has compressed the file. For clients without Brotli it is decompressed once. */
  readonly brotli: boolean;
}

const HTML = "text/html; charset=utf-8";
const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";

/** Listed one by one, because no other path under `/api/v1/docs` is public. */
const assets: readonly Asset[] = [
  { path: docsPath, file: String(page), type: HTML, brotli: false },
  { path: `${docsPath}/page.js`, file: pageScript, type: SCRIPT, brotli: false },
  { path: `${docsPath}/page.css`, file: pageStyle, type: STYLE, brotli: false },
  { path: `${docsPath}/swagger-ui.js`, file: swaggerScript, type: SCRIPT, brotli: true },
  { path: `${docsPath}/swagger-ui.css`, file: swaggerStyle, type: STYLE, brotli: true },
];

/**
 * The page loads scripts and styles from this origin only, contacts no other host, and cannot be framed.
 * Swagger UI has its icons as `data:` URLs.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** No operation for clients: without a `detail`, the document leaves it out. */
const definition = { public: true, query: noQuery } as const;

/** Imports zlib when it is first needed, which is rare, to keep startup fast. */
async function decompress(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { brotliDecompressSync } = await import("node:zlib");
  return new Uint8Array(brotliDecompressSync(bytes));
}

/**
 * An `Accept-Encoding` that has Brotli, unless its weight is 0. Browsers accept it only over HTTPS and on localhost.
 * @see RFC 9110 §12.5.3
 */
const ACCEPTS_BROTLI = /(?:^|,)[ \t]*br[ \t]*(?:,|$|;[ \t]*q=(?!0(?:\.0*)?[ \t]*(?:,|$)))/i;

/** Compares weakly, as `If-None-Match` requires (RFC 9110 §13.1.2). @param etag a weak entity tag */
function matchesEtag(ifNoneMatch: string | null, etag: string): boolean {
  return (
    ifNoneMatch !== null &&
    (ifNoneMatch.trim() === "*" || ifNoneMatch.includes(etag.replace("W/", "")))
  );
}

/** Calls `load` on first use and keeps the result. A failure is not kept. */
function lazy<Value>(load: () => Promise<Value>): () => Promise<Value> {
  let result: Promise<Value> | null = null;
  return () => {
    result ??= load().catch((error) => {
      result = null;
      throw error;
    });
    return result;
  };
}

/**
 * Creates a handler that returns the asset, or 304 if the client already has it. It is read on first use, to keep startup
 * fast. Each coding is one `Blob`, which all responses share: Bun copies bytes for each response, so that clients that do
 * not read would fill the memory.
 */
function createAssetHandler({ file, type, brotli }: Asset) {
  const stored = lazy(async () => {
    const bytes = await Bun.file(file).bytes();
    // Weak, because all codings share it.
    return { blob: new Blob([bytes]), bytes, etag: `W/"${Bun.hash(bytes).toString(36)}"` };
  });
  const decompressed = lazy(async () => new Blob([await decompress((await stored()).bytes)]));
  return async ({ request, head }: Pick<UncheckedCall, "request" | "head">) => {
    const { headers } = request;
    const { blob, etag } = await stored();
    Object.assign(head.headers, {
      "content-type": type,
      // Always revalidated, so that assets of two versions never mix.
      "cache-control": "no-cache",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      etag,
    });
    if (type === HTML) head.headers["content-security-policy"] = POLICY;
    if (brotli) head.headers["vary"] = "accept-encoding";
    if (matchesEtag(headers.get("if-none-match"), etag)) {
      head.status = 304;
      return null;
    }
    if (!brotli) return blob;
    if (!ACCEPTS_BROTLI.test(headers.get("accept-encoding") ?? "")) return decompressed();
    head.headers["content-encoding"] = "br";
    return blob;
  };
}

/** Public: the assets are the same for everyone and contain no data. */
export function docs() {
  const app = routesAt("", "system");
  for (const asset of assets) app.get(asset.path, ...route(definition, createAssetHandler(asset)));
  return app;
}
