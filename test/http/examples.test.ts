// Runs the programs of docs/examples that write, and that of docs/personal-data.md, each behind a network that loses, cuts, delays and doubles.
import { expect, test } from "bun:test";
import { makeDirectory } from "../support/directory.ts";
import { startFlakyNetwork } from "../support/flaky-network.ts";
import { canRun, killExample, startExample } from "./examples.ts";
import { newOrder, newUser } from "./make.ts";
import { startSharedServer } from "./server.ts";

const [page = "", scope = ""] = await Promise.all(
  ["personal-data", "scope"].map((name) =>
    Bun.file(`${import.meta.dir}/../../docs/${name}.md`).text(),
  ),
);
const [api = ""] = /^# Repeats a request.*?^\}\n/ms.exec(scope) ?? [];
const [, , merge = ""] = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block);

const server = await startSharedServer();
const clients = ["client.mts", "client.py", "client.sh"].filter(canRun);

test("examples do everything once when connections break, and requests arrive late and twice", async () => {
  await using resources = new AsyncDisposableStack();
  async function run(file: string, index: number, source: string | null = null): Promise<void> {
    const directory = resources.use(makeDirectory());
    // Each has a network with other faults.
    const network = resources.use(await startFlakyNetwork(server, index + 1));
    const env = { TOKEN: server.writeToken };
    const example = await startExample(directory, file, network.url, env, source);
    resources.defer(() => killExample(example));
    const { code, stderr } = await example.ended;
    expect([file, code, stderr.replace(/^(curl|Warning): .*\n/gm, "")]).toEqual([file, 0, ""]);
    if (source === null) expect([file, network.isExhausted()]).toEqual([file, true]);
  }

  // More than a page.
  for (let n = 0; n < 7; n += 1) await newUser(server);
  for (let n = 0; n < 7; n += 1) await newOrder(server, 2);

  await Promise.all(clients.map((file, index) => run(file, index)));
  if (canRun("merge.sh")) await run("merge.sh", 0, api + merge);

  const { data: users } = (await server.call("GET", "/users")).json;
  expect(users.map(({ id }: any) => id)).not.toContain(2);
  const emails = users.map(({ email }: any) => email);
  expect(emails.slice(6)).toEqual(["dan@example.com"]);
  const dan = users.at(-1);
  expect(dan.metadata).toEqual({ seen: "yes", count: `${3 * clients.length}` });
  const { data: orders } = (await server.call("GET", "/orders")).json;
  expect(orders.map(({ user_id }: any) => user_id)).toEqual([...Array(7).fill(1), dan.id]);
});
