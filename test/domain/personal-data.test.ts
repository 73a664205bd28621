// Runs the examples of docs/personal-data.md, and tests what the page says about the places where data remains.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startServer, type TestServer } from "../http/server.ts";
import { backUp } from "../sqlite/make-backup.ts";
import { makeDirectory } from "../support/directory.ts";
import { runProgram } from "../support/program.ts";

const page = await Bun.file(`${import.meta.dir}/../../docs/personal-data.md`).text();
const blocks = [...page.matchAll(/^ *```sh\n(.*?)^ *```$/gms)].map(([, block]) => block);
const [setUp, handOut, erase, merge = ""] = blocks;

/** What every value of a person in these tests contains. */
const MARK = "Leopoldine";
const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server[Symbol.asyncDispose]());

async function create(path: string, body: unknown): Promise<any> {
  const response = await server.call("POST", path, { body });
  expect(response.status).toBe(201);
  return response.json.data;
}

/** Runs examples of the page for the user with this email, who is `$id`. @returns what they handed out */
async function runExamples(email: string, last = erase): Promise<{ user: any; orders: any[] }> {
  using directory = makeDirectory();
  const adapted = [setUp, handOut, last]
    .join("")
    .replace("http://127.0.0.1:3000", server.url)
    .replace("ann@example.com", email.toUpperCase());
  const { stderr } = await runProgram(["bash", "-c", adapted], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], TOKEN: server.writeToken },
  });
  expect(stderr).toBe("");
  const [users, orders] = await Promise.all(
    ["user.json", "orders.json"].map((file) => Bun.file(directory.at(file)).json()),
  );
  return { user: users.data[0], orders: orders.data };
}

const hasPrograms = Bun.which("curl") !== null && Bun.which("jq") !== null;
describe.skipIf(!hasPrograms)(
  `docs/personal-data.md${hasPrograms ? "" : " (skipped: needs curl and jq)"}`,
  () => {
    test("examples hand out and erase a user who has orders", async () => {
      const email = `${MARK}+shop@example.com`;
      const fields = { email, name: MARK, metadata: { nickname: MARK } };
      const user = await create("/users", fields);
      const order = { user_id: user.id, currency: "EUR", items, metadata: { address: MARK } };
      const placed = [await create("/orders", order), await create("/orders", order)];

      expect(await runExamples(email)).toEqual({ user, orders: placed });

      const erased = await server.call("GET", `/users/${user.id}`);
      const { version, updated_at } = erased.json.data;
      const placeholder = { email: `${user.id}@erased.invalid`, name: null, metadata: {} };
      expect(erased.json.data).toEqual({ ...user, ...placeholder, version, updated_at });
      const { json } = await server.call("GET", `/orders?user_id=${user.id}`);
      expect(json.data.map(({ id, metadata }: any) => [id, metadata])).toEqual(
        placed.map(({ id }) => [id, {}]),
      );
    });

    test("log and backups have no data of users who were erased", async () => {
      using directory = makeDirectory();
      const path = directory.at("backup.db");
      await backUp(server.database, path);
      const backup = await Bun.file(path).text();
      expect(backup).toContain("@erased.invalid");
      expect(backup.toLowerCase()).not.toContain(MARK.toLowerCase());
      expect(server.output).toContain("/api/v1/users");
      expect(server.output.toLowerCase()).not.toContain(MARK.toLowerCase());
    });

    test("examples move the orders of a user to another one, and delete the first", async () => {
      const email = `${MARK}2@example.com`;
      const user = await create("/users", { email });
      const to = await create("/users", { email: "other@example.com" });
      const order = await create("/orders", { user_id: user.id, currency: "EUR", items });
      const adapted = merge.replace("from=2 to=1", `from=$id to=${to.id}`);
      expect(await runExamples(email, adapted)).toEqual({ user, orders: [order] });
      const moved = await server.call("GET", `/orders/${order.id}`);
      expect(moved.json.data).toMatchObject({ id: order.id, user_id: to.id, version: 2 });
      expect((await server.call("GET", `/users/${user.id}`)).status).toBe(404);
    });
  },
);
