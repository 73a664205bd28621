import { expect, test } from "bun:test";
import { createRejectedAddress } from "../../src/http/limits/client-address.ts";

/** Trusted proxies, the address that calls (none on a Unix socket), X-Forwarded-For, and the address of the client. */
const rows: [number, string | null, string | null, string | undefined][] = [
  [0, "192.0.2.1", null, "192.0.2.1"],
  [0, "192.0.2.1", "198.51.100.1", "192.0.2.1"],
  [0, "::ffff:192.0.2.1", null, "192.0.2.1"],
  [0, "2001:db8::1", null, "2001:db8::1"],
  [0, null, "198.51.100.1", undefined],
  [1, "192.0.2.1", "198.51.100.1", "198.51.100.1"],
  [1, null, "forged, 198.51.100.1", "198.51.100.1"],
  [1, "192.0.2.1", "203.0.113.9,198.51.100.1", "198.51.100.1"],
  [1, "192.0.2.1", null, "192.0.2.1"],
  [2, "192.0.2.1", "203.0.113.9, 198.51.100.1 , 192.0.2.2", "198.51.100.1"],
  [2, "192.0.2.1", "198.51.100.1", "198.51.100.1"],
  [1, null, "198.51.100.1:4711", "198.51.100.1"],
  [1, null, "[2001:db8::1]:4711", "2001:db8::1"],
  [1, null, "[2001:db8::1]", "2001:db8::1"],
  [1, null, "2001:db8::1", "2001:db8::1"],
  [1, null, "ann@example.com", undefined],
  [1, null, "unknown", undefined],
  [1, null, "cafe", undefined],
  [1, null, "", undefined],
];

test.each(rows)(
  "with %d trusted proxies, a call from %s for %s is logged as one of %s when it is rejected",
  (trustedProxies, peer, forwarded, client) => {
    const connections = { addressOf: () => peer };
    const headers = forwarded === null ? {} : { "x-forwarded-for": forwarded };
    const request = new Request("http://localhost/", { headers });
    const addressOf = (logClients: boolean, status: number) =>
      createRejectedAddress(connections, { logClients, trustedProxies })(request, status);
    for (const status of [401, 429, 503]) expect(addressOf(true, status)).toBe(client);
    for (const status of [200, 403, 404, 500]) expect(addressOf(true, status)).toBeUndefined();
    expect(addressOf(false, 401)).toBeUndefined();
  },
);
