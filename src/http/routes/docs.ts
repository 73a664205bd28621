/** The interactive reference: a page with Swagger UI. All of its assets are embedded in the binary. */
import swaggerStyle from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swaggerScript from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };
import pageStyle from "../docs/page.css" with { type: "file" };
import page from "../docs/page.html" with { type: "file" };
import pageScript from "../docs/page.js" with { type: "file" };
import type { UncheckedCall } from "../input/call.ts";
import { docsPath } from "../output/error-responses.ts";
import { route, routesAt } from "./route.ts";

/** Listed one by one, because no other path under `/api/v1/docs` is public. */
const assets: Readonly<Record<string, string>> = {
  [docsPath]: String(page),
  [`${docsPath}/page.js`]: pageScript,
  [`${docsPath}/page.css`]: pageStyle,
  [`${docsPath}/swagger-ui.js`]: swaggerScript,
  [`${docsPath}/swagger-ui.css`]: swaggerStyle,
};

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

async function readAsset(path: string) {
  const file = Bun.file(path);
  const bytes = await file.bytes();
  const headers = {
    "content-type": file.type,
    // Always revalidated, so that assets of two versions never mix.
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    etag: `"${Bun.hash(bytes).toString(36)}"`,
  };
  return { blob: new Blob([bytes]), headers };
}

/** The asset is read on first use, to keep startup fast, as one `Blob`, since Bun copies bytes for each response. */
function createAssetHandler(path: string) {
  let asset: ReturnType<typeof readAsset> | null = null;
  return async ({ request, head }: Pick<UncheckedCall, "request" | "head">) => {
    asset ??= readAsset(path);
    const { blob, headers } = await asset;
    Object.assign(head.headers, headers);
    const known = request.headers.get("if-none-match") ?? "";
    if (known.trim() !== "*" && !known.includes(headers.etag)) return blob;
    head.status = 304;
    return null;
  };
}

export function docs() {
  const app = routesAt("", "system");
  for (const [path, file] of Object.entries(assets)) {
    app.get(path, ...route({ public: true }, createAssetHandler(file)));
  }
  return app;
}
