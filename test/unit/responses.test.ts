import { expect, test } from "bun:test";
import { pageLinks } from "../../src/http/output/bodies.ts";
import { rejectedAddress } from "../../src/http/respond.ts";

/** Trusted proxies, the address that calls (none on a Unix socket), X-Forwarded-For, and the address of the client. */
const rows: [number, string | null, string | null, string | undefined][] = [
  [0, "192.0.2.1", "198.51.100.1", "192.0.2.1"],
  [0, null, "198.51.100.1", undefined],
  [1, "192.0.2.1", "203.0.113.9, 198.51.100.1", "198.51.100.1"],
  [1, "192.0.2.1", null, "192.0.2.1"],
  [2, "192.0.2.1", "203.0.113.9, 198.51.100.1 , 192.0.2.2", "198.51.100.1"],
  [2, "192.0.2.1", "198.51.100.1", "198.51.100.1"],
  [1, null, "[2001:db8::1]:4711", "[2001:db8::1]:4711"],
  [1, null, "ann@example.com", undefined],
];

test.each(rows)(
  "behind %d proxies, a rejected call from %j for %j is of %j when addresses are logged",
  (trustedProxies, peer, forwarded, client) => {
    const headers = forwarded === null ? {} : { "x-forwarded-for": forwarded };
    const request = new Request("http://localhost/", { headers });
    const connections = { addressOf: () => peer };
    const logged = (status: number, logClients: boolean) => {
      const services = { connections, config: { logClients, trustedProxies } };
      return rejectedAddress(services as never, request, status);
    };
    const clients = [401, 429, 503, 200, 404, 500].map((status) => logged(status, true));
    expect(clients).toEqual([client, client, client, undefined, undefined, undefined]);
    expect(logged(401, false)).toBeUndefined();
  },
);

const page = { total: 15_000, records: "", nextAfter: null, maxOffset: 10_000 };
const relations = (links: string) => links.match(/rel="\w+"/g)?.map((rel) => rel.slice(5, -1));

test("a page has no links to offsets that the list does not have, but to the next one at any id", () => {
  const at = (offset: number) => relations(pageLinks("/orders", { limit: 50, offset }, page));
  expect(at(0)).toEqual(["first", "next"]);
  expect(at(9_950)).toEqual(["first", "prev", "next"]);
  expect(at(10_000)).toEqual(["first", "prev"]);
  expect(at(20_000)).toEqual(["first"]);
  const byId = { ...page, nextAfter: 20_000 };
  const links = pageLinks("/orders", { limit: 50, offset: 0, after: 19_950 }, byId);
  expect(relations(links)).toEqual(["first", "next"]);
});
