/** The interactive reference: a page with Swagger UI. All of its assets are embedded in the binary. */
import swaggerStyle from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swaggerScript from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };
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
}

const HTML = "text/html; charset=utf-8";
const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";

/** Listed one by one, because no other path under `/api/v1/docs` is public. */
const assets: readonly Asset[] = [
  { path: docsPath, file: String(page), type: HTML },
  { path: `${docsPath}/page.js`, file: pageScript, type: SCRIPT },
  { path: `${docsPath}/page.css`, file: pageStyle, type: STYLE },
  { path: `${docsPath}/swagger-ui.js`, file: swaggerScript, type: SCRIPT },
  { path: `${docsPath}/swagger-ui.css`, file: swaggerStyle, type: STYLE },
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

async function readAsset(file: string) {
  const bytes = await Bun.file(file).bytes();
  return { blob: new Blob([bytes]), etag: `"${Bun.hash(bytes).toString(36)}"` };
}

/**
 * Creates a handler that returns the asset, or 304 if the client already has it. It is read on first use, to keep
 * startup fast, as one `Blob`, which all responses share: Bun copies bytes for each response, so that clients that do
 * not read would fill the memory.
 */
function createAssetHandler({ file, type }: Asset) {
  let asset: ReturnType<typeof readAsset> | null = null;
  return async ({ request, head }: Pick<UncheckedCall, "request" | "head">) => {
    asset ??= readAsset(file);
    const { blob, etag } = await asset;
    Object.assign(head.headers, {
      "content-type": type,
      // Always revalidated, so that assets of two versions never mix.
      "cache-control": "no-cache",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      etag,
    });
    if (type === HTML) head.headers["content-security-policy"] = POLICY;
    const known = request.headers.get("if-none-match") ?? "";
    if (known.trim() !== "*" && !known.includes(etag)) return blob;
    head.status = 304;
    return null;
  };
}

/** Public: the assets are the same for everyone and contain no data. */
export function docs() {
  const app = routesAt("", "system");
  for (const asset of assets) app.get(asset.path, ...route(definition, createAssetHandler(asset)));
  return app;
}
