import { expect, test } from "bun:test";
import { startSharedServer } from "./server.ts";

const directory = `${import.meta.dir}/../fixtures`;
const TLS_CERT = `${directory}/localhost.crt`;
const TLS_KEY = `${directory}/localhost.key`;

const server = await startSharedServer({ TLS_CERT, TLS_KEY });

const tls = { ca: await Bun.file(TLS_CERT).text() };

test("an unknown path returns 404 over TLS when there is a token, otherwise 401", async () => {
  const ask = async (host: string, token: string) => {
    const headers = { host, authorization: `Bearer ${token}` };
    const response = await fetch(`${server.url}/api/v1/nope`, { headers, tls });
    return response.status;
  };
  for (const host of ["localhost", "a", "a.b.c.d.example"])
    expect([await ask(host, "x"), await ask(host, server.writeToken)]).toEqual([401, 404]);
});
