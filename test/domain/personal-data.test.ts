// Runs the examples of docs/personal-data.md, and tests what the page says about the places where data remains.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startServer, type TestServer } from "../http/server.ts";
import { backUp } from "../sqlite/make-backup.ts";
import { makeDirectory } from "../support/directory.ts";
import { runProgram } from "../support/program.ts";

const page = await Bun.file(`${import.meta.dir}/../../docs/personal-data.md`).text();
const script = [...page.matchAll(/^ *```sh\n(.*?)^ *```$/gms)].map(([, block]) => block).join("");

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

/** Runs the examples of the page for the user with this email. @returns what they handed out, and the errors of requests */
async function runExamples(email: string): Promise<{ user: any; orders: any[]; errors: any[] }> {
  using directory = makeDirectory();
  const adapted = script
    .replace("http://127.0.0.1:3000", server.url)
    .replace("ann@example.com", email.toUpperCase());
  const { stderr } = await runProgram(["bash", "-c", adapted], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], TOKEN: server.writeToken },
  });
  const errors = stderr.match(/\d+(?=\n)/g) ?? [];
  expect(stderr.replace(/^curl: \(22\).*\n/gm, "")).toBe("");
  const [users, orders] = await Promise.all(
    ["user.json", "orders.json"].map((file) => Bun.file(directory.at(file)).json()),
  );
  return { user: users.data[0], orders: orders.data, errors };
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

      expect(await runExamples(email)).toEqual({ user, orders: placed, errors: ["409"] });

      const erased = await server.call("GET", `/users/${user.id}`);
      const { version, updated_at } = erased.json.data;
      const placeholder = { email: `erased-${user.id}@erased.invalid`, name: null, metadata: {} };
      expect(erased.json.data).toEqual({ ...user, ...placeholder, version, updated_at });
      const { json } = await server.call("GET", `/orders?user_id=${user.id}`);
      expect(json.data.map(({ id, metadata }: any) => [id, metadata])).toEqual(
        placed.map(({ id }) => [id, {}]),
      );
    });

    test("examples delete a user who has no orders", async () => {
      const email = `${MARK}2@example.com`;
      const user = await create("/users", { email });
      expect(await runExamples(email)).toEqual({ user, orders: [], errors: ["404"] });
      expect((await server.call("GET", `/users/${user.id}`)).status).toBe(404);
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
  },
);
