// Runs the commands of docs/scope.md.
import { expect } from "bun:test";
import { newOrder, newUser } from "../http/make.ts";
import { startServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";
import { binary, runProgram } from "../support/program.ts";
import { testIf } from "./on-binary.ts";

const page = await Bun.file(`${import.meta.dir}/../../docs/scope.md`).text();
const blocks = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block = ""]) => block);

const hasPrograms = Bun.which("curl") !== null && Bun.which("jq") !== null;
testIf(hasPrograms)("docs/scope.md does what the API has no request for", async () => {
  await using server = await startServer();
  using directory = makeDirectory();
  const joanna = await newUser(server, { name: "Joanna" });
  await newUser(server);
  const cup = { sku: "cup-01", quantity: 1, unit_price: 250 };
  const tea = { sku: "tea-01", quantity: 2, unit_price: 1999 };
  const fields = { items: [cup, tea], metadata: { gift: "yes" } };
  const order = await newOrder(server, joanna.id, fields);
  await withStore(server.database, ({ bulk }) => {
    const october = "2026-10-31T23:59:59.999Z";
    const old = { ...order, id: 7, created_at: october, updated_at: october };
    return bulk.orders.import([old, { ...old, id: 8, status: "canceled" }]);
  });

  const script = blocks.join("").replace("http://127.0.0.1:3000", server.url);
  const program = `set -e\nuser-api() { "${binary}" "$@"; }\n`;
  const { code, stdout } = await runProgram(["bash", "-c", program + script], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], TOKEN: server.writeToken, DATABASE_URL: server.database },
  });
  expect(code).toBe(0);
  expect(stdout).toStartWith(`${JSON.stringify(joanna)}\n{\n  "EUR": 4248\n}\n`);

  const { json: user } = await server.call("GET", `/users/${joanna.id}`);
  expect(user.data.metadata).toEqual({ street: "1 High Street", city: "Leeds" });
  const { json: orders } = await server.call("GET", "/orders?sort=-id");
  const [replacement] = orders.data;
  const expected = { items: [tea], total: 3998, metadata: { gift: "yes", replaces: "1" } };
  expect(replacement).toMatchObject({ ...expected, user_id: joanna.id, status: "pending" });
  expect(orders.data.at(-1)).toMatchObject({ id: order.id, status: "canceled" });
});
