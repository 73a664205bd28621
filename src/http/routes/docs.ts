/** The pages: the interactive reference, with Swagger UI, and one to look at records. Embedded in the binary. */
import swaggerStyle from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swaggerScript from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };
import browseStyle from "../browse/page.css" with { type: "file" };
import browsePage from "../browse/page.html" with { type: "file" };
import browseScript from "../browse/page.js" with { type: "file" };
import pageStyle from "../docs/page.css" with { type: "file" };
import page from "../docs/page.html" with { type: "file" };
import pageScript from "../docs/page.js" with { type: "file" };
import type { UncheckedCall } from "../input/call.ts";
import { docsPath } from "../output/error-responses.ts";
import { route, routesAt } from "./route.ts";

const browsePath = "/api/v1/browse";

/** Listed one by one, because no other path below these is public. */
const assets: Readonly<Record<string, string>> = {
  [docsPath]: String(page),
  [`${docsPath}/page.js`]: pageScript,
  [`${docsPath}/page.css`]: pageStyle,
  [`${docsPath}/swagger-ui.js`]: swaggerScript,
  [`${docsPath}/swagger-ui.css`]: swaggerStyle,
  [browsePath]: String(browsePage),
  [`${browsePath}/page.js`]: browseScript,
  [`${browsePath}/page.css`]: browseStyle,
};

/** Icons are `data:` URLs. */
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

/** Texts of records cannot become elements. Swagger UI makes elements of texts. */
const BROWSE_POLICY = `${POLICY}; require-trusted-types-for 'script'`;

async function readAsset(path: string, policy: string) {
  const file = Bun.file(path);
  const bytes = await file.bytes();
  const headers = {
    "content-type": file.type,
    // Always revalidated, so that assets of two versions never mix.
    "cache-control": "no-cache",
    "content-security-policy": policy,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    etag: `"${Bun.hash(bytes).toString(36)}"`,
  };
  return { blob: new Blob([bytes]), headers };
}

/** The asset is read on first use, to keep startup fast, as one `Blob`, since Bun copies bytes for each response. */
function createAssetHandler(path: string, policy: string) {
  let asset: ReturnType<typeof readAsset> | null = null;
  return async ({ request, head }: Pick<UncheckedCall, "request" | "head">) => {
    asset ??= readAsset(path, policy);
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
    const policy = path.startsWith(browsePath) ? BROWSE_POLICY : POLICY;
    app.get(path, ...route({ public: true }, createAssetHandler(file, policy)));
  }
  return app;
}
