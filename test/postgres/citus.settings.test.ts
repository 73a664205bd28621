import { expect, test } from "bun:test";
import { withCitusSettings } from "../../src/postgres/citus/settings.ts";

const pool = "citus.max_adaptive_executor_pool_size";
const binary = "citus.enable_binary_protocol";

for (const [what, url, expected] of [
  ["has no parameters", "postgres://db/shop", `postgres://db/shop?${pool}=1&${binary}=off`],
  ["has others", "postgres://db/shop?max=5", `postgres://db/shop?max=5&${pool}=1&${binary}=off`],
  ["has one of them", `postgres://db/shop?${pool}=4`, `postgres://db/shop?${pool}=4&${binary}=off`],
  [
    "has both of them",
    `postgres://db/shop?${binary}=on&${pool}=4`,
    `postgres://db/shop?${binary}=on&${pool}=4`,
  ],
  ["is that of a pooler", "postgres://db/shop?prepare=false", "postgres://db/shop?prepare=false"],
] as const) {
  test(`withCitusSettings adds the settings that are missing when the URL ${what}`, () => {
    expect(withCitusSettings(url)).toBe(expected);
  });
}
