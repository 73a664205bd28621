// The assets of the reference over HTTP. test/browser tests the page itself.
import { describe, expect, test } from "bun:test";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();
const noToken = { token: null };

const swagger = "node_modules/swagger-ui-dist";
const FILES: [path: string, type: string, source: string][] = [
  ["/docs", "text/html;charset=utf-8", "src/http/docs/page.html"],
  ["/docs/page.js", "text/javascript;charset=utf-8", "src/http/docs/page.js"],
  ["/docs/page.css", "text/css;charset=utf-8", "src/http/docs/page.css"],
  ["/docs/swagger-ui.js", "text/javascript;charset=utf-8", `${swagger}/swagger-ui-bundle.js`],
  ["/docs/swagger-ui.css", "text/css;charset=utf-8", `${swagger}/swagger-ui.css`],
];

test.each(FILES)(
  "%s is public, for GET and HEAD, has its source file, and no parameters",
  async (path, type, file) => {
    const original = await Bun.file(`${import.meta.dir}/../../${file}`).text();
    for (const token of [null, "garbage", server.readToken]) {
      const get = await server.call("GET", path, { token });
      const head = await server.call("HEAD", path, { token });
      expect([get.status, get.text === original, head.text]).toEqual([200, true, ""]);
      expect(get.headers.has("content-encoding")).toBe(false);
      for (const { status, headers } of [get, head])
        expect([status, Object.fromEntries(headers)]).toMatchObject([
          200,
          {
            "content-type": type,
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "x-request-id": expect.stringMatching(/./),
            etag: expect.stringMatching(/^"\w+"$/),
          },
        ]);
    }
    expect((await server.call("GET", `${path}?url=https://example.com`, noToken)).status).toBe(400);
  },
);

test.each(FILES)("%s returns 304 when the client already has it", async (path) => {
  const etag = (await server.call("GET", path, noToken)).headers.get("etag") ?? "";
  const ask = (known: string, method = "GET") =>
    server.call(method, path, { ...noToken, headers: { "if-none-match": known } });
  for (const response of [await ask(etag), await ask(`"a", W/${etag}`, "HEAD")]) {
    expect([response.status, response.text]).toEqual([304, ""]);
    expect(response.headers.get("etag")).toBe(etag);
    expect(response.headers.get("cache-control")).toBe("no-cache");
  }
  for (const known of ["*", `W/${etag}`]) expect((await ask(known)).status).toBe(304);
  for (const known of ['W/"1"', "", "x"]) expect((await ask(known)).status).toBe(200);
});

describe("the page", () => {
  test("Content-Security-Policy allows only content of this server", async () => {
    const { headers } = await server.call("GET", "/docs", noToken);
    const policy = headers.get("content-security-policy")?.split("; ") ?? [];
    const others = ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"];
    const own = ["connect-src", "script-src", "style-src"].map((name) => `${name} 'self'`);
    const all = [...others, ...own, "default-src 'none'", "img-src 'self' data:"];
    expect(policy.toSorted()).toEqual(all.toSorted());
  });

  test("the page refers to existing assets only, and to no other host", async () => {
    const { text } = await server.call("GET", "/docs", noToken);
    const named = [...text.matchAll(/ (?:src|href)="(docs\/[^"]+)"/g)].map(([, path]) => path);
    expect(named.map((path) => `/${path}`).toSorted()).toEqual(
      FILES.slice(1)
        .map(([path]) => path)
        .toSorted(),
    );
    // The XML namespace of SVG in the icon is not requested.
    expect(text.match(/(?:https?:)?\/\/[\w.]+/g)).toEqual(["http://www.w3.org"]);
    expect(text).not.toMatch(/<script(?! src=)|<style| style=| on\w+=/);
  });
});
