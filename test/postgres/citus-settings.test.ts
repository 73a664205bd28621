import { describe, expect, test } from "bun:test";
import { cluster, makeHarness } from "./postgres-harness.ts";

const pool = "citus.max_adaptive_executor_pool_size";
const binary = "citus.enable_binary_protocol";

const readSettings = `
  select current_setting('${pool}', true) as pool, current_setting('${binary}', true) as binary
`;

// A server without the extension accepts its settings, too.
describe.if(cluster !== null)("connect", () => {
  for (const [what, parameters, expected] of [
    ["has the layout citus", "layout=citus", { pool: "1", binary: "off" }],
    ["has one of them", `layout=citus&${pool}=4`, { pool: "4", binary: "off" }],
    ["has both of them", `layout=citus&${binary}=on&${pool}=4`, { pool: "4", binary: "on" }],
    ["is that of a pooler", "layout=citus&prepare=false", { pool: null, binary: null }],
    ["has the plain layout", "layout=plain", { pool: null, binary: null }],
  ] as const) {
    test(`adds the settings of Citus that are missing when the URL ${what}`, async () => {
      await using world = await makeHarness();
      // The URL of a test always has a parameter.
      const db = world.connect(`${world.url}&${parameters}`);
      const found = await db.run("read", (session) => session.first<object>(readSettings));
      expect(found).toEqual(expected);
    });
  }
});
