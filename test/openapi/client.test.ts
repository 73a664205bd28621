// Compiles and runs the typed client of docs/clients.md.
import { expect, test } from "bun:test";
import { startSharedServer } from "../http/server.ts";
import { enabled, made, run, runTool } from "./made.ts";

const server = enabled ? await startSharedServer() : (null as never);

/** The address in the examples of the documentation. */
const ADDRESS = "http://127.0.0.1:3000";
const TIMEOUT_MS = 60_000;

const page = await Bun.file(`${import.meta.dir}/../../docs/clients.md`).text();
const [, lines = ""] = /^```ts\n(.*?)^```$/ms.exec(page) ?? [];

test.skipIf(!enabled)(
  "client of docs/clients.md compiles under strict and works",
  async () => {
    await Bun.write(made("client.ts"), lines.replaceAll(ADDRESS, server.url));
    const source = `${server.url}/api/v1/openapi.json`;
    await runTool("openapi-typescript", source, "--output", made("user-api.d.ts"));
    const compiled = await run([
      "../../node_modules/.bin/tsc",
      "--project",
      "tsconfig.client.json",
    ]);
    expect(compiled).toEqual({ code: 0, text: "" });
    const ran = await run([process.execPath, made("client.ts")], { TOKEN: server.writeToken });
    expect(ran.text).toStartWith('3998 </api/v1/orders?limit=20&offset=0&user_id=1>; rel="first"');
    expect(ran.code).toBe(0);
    const { data } = (await server.call("GET", "/users")).json;
    expect(data).toMatchObject([{ email: "eve@example.com", name: "Eve" }]);
  },
  TIMEOUT_MS,
);
