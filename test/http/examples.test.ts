// Runs the programs of docs/examples and docs/personal-data.md at the same time, each behind a network that loses, cuts, delays and doubles.
import { expect, test } from "bun:test";
import { makeDirectory } from "../support/directory.ts";
import { startFlakyNetwork } from "../support/flaky-network.ts";
import { canRun, killExample, startExample, untilInStep } from "./examples.ts";
import { newOrder, newUser } from "./make.ts";
import { startSharedServer } from "./server.ts";

const page = await Bun.file(`${import.meta.dir}/../../docs/personal-data.md`).text();
const blocks = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block);
const [, , merge = ""] = blocks;
const sources: Readonly<Record<string, string>> = { "merge.sh": merge };

const server = await startSharedServer();

/** Each has a network with other faults. */
const programs = [
  ...["follow.mts", "follow.py", "follow.sh"],
  ...["client.mts", "client.py", "client.sh"],
].filter(canRun);

test("examples do everything once when connections break, and requests arrive late and twice", async () => {
  await using resources = new AsyncDisposableStack();
  async function start(file: string, index: number) {
    const directory = resources.use(makeDirectory());
    const network = resources.use(await startFlakyNetwork(server.url, index + 1));
    const env = { TOKEN: server.writeToken };
    const example = await startExample(directory, file, network.url, env, sources[file] ?? null);
    resources.defer(() => killExample(example));
    return { file, directory, example, network };
  }

  // More than a page.
  for (let n = 0; n < 7; n += 1) await newUser(server);
  for (let n = 0; n < 7; n += 1) await newOrder(server, 2);

  const running = await Promise.all(programs.map(start));
  const following = running.filter(({ file }) => file.startsWith("follow"));
  const ending = running.filter(({ file }) => !file.startsWith("follow"));
  async function requireSuccess({ file, example }: (typeof running)[number]) {
    const { code, stderr } = await example.ended;
    expect([file, code, stderr.replace(/^(curl|Warning): .*\n/gm, "")]).toEqual([file, 0, ""]);
  }
  for (const program of ending) await requireSuccess(program);
  const merging = await Promise.all(["merge.sh"].filter(canRun).map(start));
  for (const program of merging) await requireSuccess(program);

  const { data: users } = (await server.call("GET", "/users")).json;
  expect(users.map(({ id }: any) => id)).not.toContain(2);
  const emails = users.map(({ email }: any) => email);
  expect(emails.slice(6)).toEqual(["dan@example.com"]);
  const dan = users.at(-1);
  const counting = ending.filter(({ file }) => file.startsWith("client"));
  expect(dan.metadata).toEqual({ seen: "yes", count: `${3 * counting.length}` });
  const { data: orders } = (await server.call("GET", "/orders")).json;
  expect(orders.map(({ user_id }: any) => user_id)).toEqual([...Array(7).fill(1), dan.id]);
  for (const { directory, example } of following) await untilInStep(server, directory, example);
  for (const { file, network } of [...counting, ...following])
    expect([file, network.isExhausted()]).toEqual([file, true]);
});
