// Only a real pipe shows what happens when its reader closes it.
import { expect, test } from "bun:test";
import { fillDatabase } from "../support/fill.ts";
import { makeHarness } from "./harness.ts";

test.each(["export orders", "changes"])(
  "%s exits with 141 and prints nothing when its reader closes the pipe",
  async (command) => {
    using world = makeHarness();
    await fillDatabase(world.path, 100, 5000);
    const line = `"$@" ${command} | head -1 >/dev/null; exit "\${PIPESTATUS[0]}"`;
    expect(await world.shell(line)).toEqual({ code: 141, stdout: "", stderr: "" });
  },
);

test("changes --follow continues while the reader of a full pipe is slow, and ends without a message at a signal", async () => {
  using world = makeHarness();
  await fillDatabase(world.path, 100, 3000);
  // The reader sends the signal when it has read the last change, and writes no more than that one.
  const following = `sh -c 'echo $$ >"$0"; exec "$@" changes --follow' "$PIDFILE" "$@"`;
  const reading = `sleep 1; sed -n '/^{"id":3100,/{p;q}'; kill "$(cat "$PIDFILE")"; cat`;
  const line = `PIDFILE='${world.at("pid")}'; ${following} | { ${reading}; }; exit "\${PIPESTATUS[0]}"`;
  const { code, stdout, stderr } = await world.shell(line);
  expect([code, stderr]).toEqual([0, ""]);
  expect(JSON.parse(stdout)).toMatchObject({ id: 3_100 });
});
