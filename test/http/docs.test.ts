// The assets of the reference over HTTP. test/browser tests the page itself.
import { expect, test } from "bun:test";
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
  "%s is public, for GET and HEAD, has its source file, and no parameters, and is a 304 for a client that has it",
  async (path, type, file) => {
    const original = await Bun.file(`${import.meta.dir}/../../${file}`).text();
    for (const token of [null, "garbage", server.readToken]) {
      const get = await server.call("GET", path, { token });
      const head = await server.call("HEAD", path, { token });
      expect([get.status, get.text === original, head.text]).toEqual([200, true, ""]);
      expect(get.headers.has("content-encoding")).toBe(false);
      expect(head.status).toBe(200);
      for (const { headers } of [get, head])
        expect(Object.fromEntries(headers)).toMatchObject({
          ...{ "content-type": type, "cache-control": "no-cache" },
          ...{ "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" },
          ...{ "x-request-id": expect.stringMatching(/./), etag: expect.stringMatching(/^"\w+"$/) },
        });
    }
    expect((await server.call("GET", `${path}?url=https://example.com`, noToken)).status).toBe(400);
    const etag = (await server.call("HEAD", path, noToken)).headers.get("etag") ?? "";
    for (const [known, status] of [
      ...[etag, `"a", W/${etag}`, "*", `W/${etag}`].map((tags) => [tags, 304] as const),
      ...['W/"1"', "", "x"].map((tags) => [tags, 200] as const),
    ])
      for (const method of ["GET", "HEAD"]) {
        const options = { ...noToken, headers: { "if-none-match": known } };
        const response = await server.call(method, path, options);
        expect([known, response.status]).toEqual([known, status]);
        expect(response.headers.get("etag")).toBe(etag);
        expect(response.headers.get("cache-control")).toBe("no-cache");
        if (status === 304) expect(response.text).toBe("");
      }
  },
);

test("the page has no inline scripts and styles, and it and its policy allow only content of this server", async () => {
  const { text, headers } = await server.call("GET", "/docs", noToken);
  const policy = headers.get("content-security-policy")?.split("; ") ?? [];
  const others = ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"];
  const own = ["connect-src", "script-src", "style-src"].map((name) => `${name} 'self'`);
  const all = [...others, ...own, "default-src 'none'", "img-src 'self' data:"];
  expect(policy.toSorted()).toEqual(all.toSorted());
  const assets = FILES.slice(1).map(([path]) => `="${path.slice(1)}"`);
  expect(text.match(/="docs\/[^"]+"/g)?.toSorted()).toEqual(assets.toSorted());
  // The XML namespace of SVG in the icon is not requested.
  expect(text.match(/(?:https?:)?\/\/[\w.]+/g)).toEqual(["http://www.w3.org"]);
  expect(text).not.toMatch(/<script(?! src=)|<style| style=| on\w+=/);
});
