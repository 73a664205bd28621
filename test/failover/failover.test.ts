// A PostgreSQL server is killed under load, its synchronous standby is promoted, and a proxy sends the service to it.
// `make failover-test` runs it.
import { expect, test } from "bun:test";
import { findPrograms, type Instance, runOn, startInstance } from "../postgres/instance.ts";
import { runChangesModel, type World, writingBackends } from "../support/changes-model.ts";
import { startSwitch } from "./switch.ts";

const required = Bun.env["TEST_FAILOVER"] === "true";

const SECONDS = 12;

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

test.if(required)(
  "acknowledged writes are stored exactly once, and clients of the feed see all changes, when the primary is killed and its standby promoted",
  async () => {
    const programs = findPrograms();
    if (programs === null) throw new Error("Cannot test a failover: PostgreSQL is not installed");
    await using resources = new AsyncDisposableStack();
    let primary = resources.use(await startInstance(programs, {}));
    await runOn(primary.url, "create database user_api");
    const endpoint = resources.use(await startSwitch(primary.url));
    const world: World = {
      database: endpoint.through(primary.url).replace(/postgres$/, "user_api"),
      processes: 2,
      hasSnapshots: true,
      isReplaced: true,
      seconds: SECONDS,
      async killDatabase(urls) {
        const standby = resources.use(await addStandby(programs, primary));
        primary.signal("SIGKILL");
        await promote(standby);
        endpoint.pointAt(standby.url);
        primary = standby;
        for (const url of urls)
          while (!(await fetch(`${url}/api/v1/health`)).ok) await Bun.sleep(10);
      },
      async settle() {
        while ((await runOn(primary.url, writingBackends)).length > 0) await Bun.sleep(10);
      },
    };
    expect(await runChangesModel(world)).toBeGreaterThan(10 * SECONDS);
  },
  120_000,
);
