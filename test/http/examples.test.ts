// Runs the programs of docs/examples and docs/personal-data.md at the same time, each behind a network that loses, cuts, delays and doubles.
import { expect, test } from "bun:test";
import { backUp } from "../sqlite/make-backup.ts";
import { makeDirectory } from "../support/directory.ts";
import { startFlakyNetwork } from "../support/flaky-network.ts";
import { canRun, killExample, startExample, untilInStep } from "./examples.ts";
import { newOrder, newUser } from "./make.ts";
import { startSharedServer } from "./server.ts";

const page = await Bun.file(`${import.meta.dir}/../../docs/personal-data.md`).text();
const blocks = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block);
const [api, handOut, erase, merge] = blocks;
const sources: Readonly<Record<string, string>> = {
  "erase.sh": `${api}${handOut}${erase}`,
  "merge.sh": `${api}${merge}`,
};

/** What every value of the user who is erased contains. */
const MARK = "ann@example.com";

const server = await startSharedServer();

/** Each has a network with other faults. */
const programs = [
  ...["follow.mts", "follow.py", "follow.sh"],
  ...["client.mts", "client.py", "client.sh", "erase.sh"],
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
  const ann = await newUser(server, { email: MARK, name: MARK, metadata: { nickname: MARK } });
  const ofAnn = [1, 2].map(() => newOrder(server, ann.id, { metadata: { gift: MARK } }));
  const placed = (await Promise.all(ofAnn)).sort((one, other) => one.id - other.id);
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
  expect(emails.slice(6)).toEqual([`${ann.id}@erased.invalid`, "dan@example.com"]);
  const dan = users.at(-1);
  const counting = ending.filter(({ file }) => file.startsWith("client"));
  expect(dan.metadata).toEqual({ seen: "yes", count: `${3 * counting.length}` });
  const { data: orders } = (await server.call("GET", "/orders")).json;
  expect(orders.map(({ user_id, metadata }: any) => [user_id, metadata])).toEqual([
    [ann.id, {}],
    [ann.id, {}],
    ...Array.from({ length: 7 }, () => [1, {}]),
    [dan.id, {}],
  ]);
  const erasing = ending.filter(({ file }) => file === "erase.sh");
  for (const { directory } of erasing) {
    const [user, handedOut] = await Promise.all(
      ["user.json", "orders.json"].map((file) => Bun.file(directory.at(file)).json()),
    );
    expect([user.data, handedOut.data]).toEqual([[ann], placed]);
    const backup = directory.at("backup.db");
    await backUp(server.database, backup);
    expect(await Bun.file(backup).text()).toContain("@erased.invalid");
    for (const text of [await Bun.file(backup).text(), server.output])
      expect(text.toLowerCase()).not.toContain(MARK);
  }
  for (const { directory, example } of following) await untilInStep(server, directory, example);
  for (const { file, network } of [...counting, ...following])
    expect([file, network.isExhausted()]).toEqual([file, true]);
}, 120_000);
