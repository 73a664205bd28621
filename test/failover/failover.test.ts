// A PostgreSQL server is killed under load, its synchronous standby is promoted, and a proxy sends the service to it.
// `make failover-test` runs it.
import { test as anyTest } from "bun:test";
import { playHistories } from "../model/contract/server-port.ts";
import { findPrograms, type Instance, runOn, startInstance } from "../postgres/instance.ts";
import { startSwitch } from "./switch.ts";

const test = anyTest.if(Bun.env["TEST_FAILOVER"] === "true");

const reload = "select pg_reload_conf()";

/** Starts a standby. From then on, a commit on the primary waits until it is on the disks of both. */
async function addStandby(programs: string, primary: Instance): Promise<Instance> {
  const standby = await startInstance(programs, {}, primary.url);
  await runOn(primary.url, "alter system set synchronous_standby_names = 'standby'", reload);
  const state = "select sync_state from pg_stat_replication where application_name = 'standby'";
  while (!Bun.deepEquals(await runOn(primary.url, state), [{ sync_state: "sync" }]))
    await Bun.sleep(10);
  return standby;
}

/** The new primary has no standby yet: its commits must not wait for one. */
async function promote(standby: Instance): Promise<void> {
  const reset = "alter system reset synchronous_standby_names";
  await runOn(standby.url, reset, "select pg_promote()");
}

test("histories keep all promises, but for the name of the feed, when the primary is killed and its standby promoted", async () => {
  const programs = findPrograms();
  if (programs === null) throw new Error("Cannot test a failover: PostgreSQL is not installed");
  await playHistories(1, async () => {
    await using resources = new AsyncDisposableStack();
    let primary = resources.use(await startInstance(programs, {}));
    const endpoint = resources.use(await startSwitch(primary.url));
    const database = endpoint.through(await primary.createDatabase());
    let standby = resources.use(await addStandby(programs, primary));
    const kept = resources.move();
    const killDatabase = async () => {
      primary.signal("SIGKILL");
      await promote(standby);
      endpoint.pointAt(standby.url);
      primary = standby;
      standby = kept.use(await addStandby(programs, primary));
    };
    const dispose = () => kept.disposeAsync();
    return { database, killDatabase, isReplaced: true, [Symbol.asyncDispose]: dispose };
  });
}, 600_000);
