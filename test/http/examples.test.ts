// Runs the clients of docs/examples with the programs of docs/clients.md, and the script of docs/personal-data.md, each behind
// a network that loses, cuts, delays and doubles; and the commands of docs/checkout.md and docs/scope.md.
import { expect, test } from "bun:test";
import { makeDirectory } from "../support/directory.ts";
import { startFlakyNetwork } from "../support/flaky-network.ts";
import { withStore } from "../support/open-store.ts";
import { binary, runProgram } from "../support/program.ts";
import {
  blocksOf,
  exampleOf,
  killExample,
  type RuntimeName,
  runtimes,
  startExample,
} from "./examples.ts";
import { newOrder, newUser } from "./make.ts";
import { againstBinary, startServer, startSharedServer } from "./server.ts";

const server = await startSharedServer();
const BASH = "Bash with curl and jq";
const canRun = ([name]: readonly [RuntimeName, ...unknown[]]) => runtimes[name].canRun;

const [typescript = ""] = await blocksOf("clients.md", "ts");
const [python = ""] = await blocksOf("clients.md", "python");
const [, , merge = ""] = await blocksOf("personal-data.md", "sh");
const scope = await Bun.file(`${import.meta.dir}/../../docs/scope.md`).text();
const [api = ""] = /^# Repeats a request.*?^\}\n/ms.exec(scope) ?? [];

const rejected = "validation_failed email\n";
type Program = readonly [RuntimeName, source: string, counted: number, stdout: string];
const programs: readonly Program[] = [
  ["Bun", typescript, 1, rejected],
  ["Node 22.18", typescript, 1, rejected],
  ["Python", python, 1, rejected],
  ["sh with curl and jq", await exampleOf("client.sh"), 3, ""],
];

test("examples do everything once when connections break, and requests arrive late and twice", async () => {
  await using resources = new AsyncDisposableStack();
  async function run(name: RuntimeName, source: string, seed: number) {
    const directory = resources.use(makeDirectory());
    // Each has a network with other faults.
    const network = resources.use(await startFlakyNetwork(server, seed));
    const env = { TOKEN: server.writeToken };
    const example = await startExample(directory, name, source, network.url, env);
    resources.defer(() => killExample(example));
    const { code, stdout, stderr } = await example.ended;
    expect([name, code, stderr.replace(/^(curl|Warning): .*\n/gm, "")]).toEqual([name, 0, ""]);
    return { stdout, isExhausted: network.isExhausted() };
  }

  // More than a page.
  for (let n = 0; n < 7; n += 1) await newUser(server);
  for (let n = 0; n < 7; n += 1) await newOrder(server, 2);

  const runnable = programs.filter(canRun);
  await Promise.all(
    runnable.map(async ([name, source, , stdout], index) => {
      const ran = await run(name, source, index + 1);
      expect([name, ran]).toEqual([name, { stdout, isExhausted: true }]);
    }),
  );
  if (canRun([BASH])) await run(BASH, api + merge, 1);

  const { data: users } = (await server.call("GET", "/users")).json;
  expect(users.map(({ id }: any) => id)).not.toContain(2);
  const emails = users.map(({ email }: any) => email);
  expect(emails.slice(6)).toEqual(["dan@example.com"]);
  const dan = users.at(-1);
  const count = runnable.reduce((sum, [, , counted]) => sum + counted, 0);
  expect(dan.metadata).toEqual({ count: `${count}` });
  const { data: orders } = (await server.call("GET", "/orders")).json;
  expect(orders.map(({ user_id }: any) => user_id)).toEqual([...Array(7).fill(1), dan.id]);
});

const typescriptCalls = `import { ApiError, Client } from "./client.ts";
const api = new Client("http://127.0.0.1:3000/", "uat_a");
async function tell(call) {
  try {
    await call;
    console.log("done");
  } catch (error) {
    console.log(error instanceof ApiError ? error.code : "no response");
  }
}
for (const id of [1, 2, 3]) await tell(api.user(id));
await tell(api.createUser({ email: "a@example.com" }));
await tell(api.editUser(9, () => ({ name: "Ann" })));
const query = { reference: "a +&b", status: ["paid", "shipped"] };
for await (const { id } of api.orders(query)) console.log(id);
async function follow() {
  for await (const { position } of api.changes("f-3")) console.log(position);
}
await tell(follow());
`;
const pythonCalls = `from client import ApiError, Client
api = Client("http://127.0.0.1:3000/", "uat_a")
def tell(call):
    try:
        call()
        print("done")
    except ApiError as error:
        print(error.code)
    except OSError:
        print("no response")
for user_id in (1, 2, 3):
    tell(lambda: api.user(user_id))
tell(lambda: api.create_user({"email": "a@example.com"}))
tell(lambda: api.edit_user(9, lambda user: {"name": "Ann"}))
for order in api.orders(reference="a +&b", status=["paid", "shipped"]):
    print(order["id"])
def follow():
    for change in api.changes("f-3"):
        print(change["position"])
tell(follow)
`;

/** Responds as no server of this project does, and counts requests. */
function startOtherServer() {
  const counts = new Map<string, number>();
  const done = { data: {}, error: null };
  const responses: Readonly<Record<string, () => Response>> = {
    "GET /api/v1/users/1": () => new Response("<html>", { status: 503 }),
    "GET /api/v1/users/2": () => new Response("<html>"),
    "GET /api/v1/users/3": () => new Response("order not found", { status: 404 }),
    "POST /api/v1/users": () => Response.redirect("/api/v1/users/9", 301),
    "GET /api/v1/users/9": () => Response.json(done, { headers: { etag: '"2"' } }),
    // Another client was faster.
    'PATCH /api/v1/users/9 if "2"': () =>
      counts.get('PATCH /api/v1/users/9 if "2"') === 1
        ? Response.json({ data: null, meta: { code: "version_mismatch" } }, { status: 412 })
        : Response.json(done),
    "GET /api/v1/orders?limit=5&after=0&reference=a%20%2B%26b&status=paid%2Cshipped": () =>
      Response.json({ data: [{ id: 7 }], error: null, meta: {} }),
    "GET /api/v1/changes?after=3&feed=f&limit=5&include=record&wait=50": () =>
      Response.json({ data: [{ id: 4 }] }, { headers: { link: '</gone>; rel="next"' } }),
    "GET /gone": () =>
      Response.json({ data: null, meta: { code: "changes_expired" } }, { status: 410 }),
  };
  const other = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch({ method, url, headers }) {
      const condition = headers.has("if-match") ? ` if ${headers.get("if-match")}` : "";
      const request = `${method} ${url.slice(new URL(url).origin.length)}${condition}`;
      counts.set(request, (counts.get(request) ?? 0) + 1);
      return responses[request]?.() ?? new Response("none", { status: 410 });
    },
  });
  return { url: other.url.origin, counts, [Symbol.asyncDispose]: () => other.stop(true) };
}

const calls: readonly (readonly [RuntimeName, source: string])[] = [
  ["Bun", typescriptCalls],
  ["Node 22.18", typescriptCalls],
  ["Python", pythonCalls],
];

for (const [name, source] of calls)
  test.skipIf(!canRun([name]))(
    `a client in ${name} gives up after ten attempts, follows no redirect, repeats an edit after a 412, encodes queries, and continues after a position`,
    async () => {
      await using other = startOtherServer();
      using directory = makeDirectory();
      const { stdout, stderr } = await (await startExample(directory, name, source, other.url, {}))
        .ended;
      const words = "unknown unknown not_found unknown done 7 f-4 changes_expired";
      expect([stderr, stdout.trim().split("\n")]).toEqual(["", words.split(" ")]);
      expect([...other.counts.values()]).toEqual([10, 1, 1, 1, 2, 2, 1, 1, 1]);
    },
  );

test.skipIf(!canRun([BASH]))("the commands of docs/checkout.md print what it shows", async () => {
  await using own = await startServer();
  using directory = makeDirectory();
  // Another server than a new one.
  const { id } = await newUser(own);
  await newOrder(own, id);
  const script = `set -e\n${(await blocksOf("checkout.md", "sh")).join("")}`;
  const env = { TOKEN: own.writeToken };
  const { stdout, stderr } = await (await startExample(directory, BASH, script, own.url, env))
    .ended;
  const shown = await blocksOf("checkout.md", "text");
  expect({ stdout, stderr }).toEqual({ stdout: shown.join(""), stderr: "" });
});

test.skipIf(!againstBinary || !canRun([BASH]))(
  "the commands of docs/scope.md do what the API has no request for",
  async () => {
    await using own = await startServer();
    using directory = makeDirectory();
    const joanna = await newUser(own, { name: "Joanna" });
    await newUser(own);
    const cup = { sku: "cup-01", quantity: 1, unit_price: 250 };
    const tea = { sku: "tea-01", quantity: 2, unit_price: 1999 };
    const fields = { items: [cup, tea], metadata: { gift: "yes" } };
    const order = await newOrder(own, joanna.id, fields);
    await withStore(own.database, ({ bulk }) => {
      const october = "2026-10-31T23:59:59.999Z";
      const old = { ...order, id: 7, created_at: october, updated_at: october };
      return bulk.orders.import([old, { ...old, id: 8, status: "canceled" }]);
    });
    const blocks = (await blocksOf("scope.md", "sh")).join("");
    const script = `set -e\nuser-api() { "${binary}" "$@"; }\n${blocks}`;
    const env = { TOKEN: own.writeToken, DATABASE_URL: own.database };
    const { code, stdout } = await (await startExample(directory, BASH, script, own.url, env))
      .ended;
    expect(code).toBe(0);
    expect(stdout).toStartWith(`${JSON.stringify(joanna)}\n{\n  "EUR": 4248\n}\n`);
    const { json: user } = await own.call("GET", `/users/${joanna.id}`);
    expect(user.data.metadata).toEqual({ street: "1 High Street", city: "Leeds" });
    const { data: orders } = (await own.call("GET", "/orders?sort=-id")).json;
    const expected = { items: [tea], total: 3998, metadata: { gift: "yes", replaces: "1" } };
    expect(orders[0]).toMatchObject({ ...expected, user_id: joanna.id, status: "pending" });
    expect(orders.at(-1)).toMatchObject({ id: order.id, status: "canceled" });
  },
);

test.skipIf(!canRun(["Python"]))("the examples in Python are written for Python 3.9", async () => {
  const parse = "import ast, sys\nast.parse(sys.argv[1], feature_version=(3, 9))";
  for (const file of ["client.py", "follow.py"]) {
    const parsed = await runProgram(["python3", "-c", parse, await exampleOf(file)], {
      env: { PATH: Bun.env["PATH"] },
    });
    expect(parsed).toEqual({ code: 0, stdout: "", stderr: "" });
  }
});
