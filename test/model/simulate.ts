/** Runs a history, and checks all rules. */
import { HEALED_MS, type Plan } from "./plan.ts";
import { boundsOf } from "./rules.ts";
import { createWorld, type Mutant } from "./world.ts";

/** Until a rule is broken, the history goes on in steps. */
const STEP_MS = 1_000;

export function simulate(plan: Plan, mutant: Mutant = {}) {
  const world = createWorld(plan, mutant);
  const { scheduler, bucket, rules, sites, effects, trace } = world;
  const bounds = boundsOf(plan);
  let exception: string | null = null;
  for (const [at, site] of sites.entries())
    scheduler.after(plan.sites[at]?.startMs ?? 0, () => world.start(site));
  for (const event of plan.events)
    scheduler.after(event.atMs, () => {
      world.note(`EVENT ${event.kind} ${sites[event.site]?.name} ${event.ms} ${event.value}`);
      effects[event.kind](sites[event.site] as (typeof sites)[number], event);
    });
  scheduler.after(HEALED_MS, () => {
    world.heal();
    exception = world.findException();
    if (exception !== null) world.note(`EXCEPTION ${exception}`);
  });
  scheduler.after(bounds.servesMs, () => {
    if (!plan.standby) return;
    if (exception === null) rules.requireService(bounds);
    else if (!plan.events.some(({ kind }) => kind === "forget"))
      rules.requireCommand(sites, bounds);
  });
  let lost: (typeof sites)[number] | null = null;
  scheduler.after(bounds.followsMs, () => {
    if (exception === null && plan.standby) rules.requireFollowers(sites, bounds);
  });
  scheduler.after(bounds.encoreMs, () => {
    if (exception !== null || plan.encore === null || plan.commit === "async") return;
    lost = sites.find(({ name }) => name === rules.writer()) ?? null;
    if (lost === null) return;
    world.note(`ENCORE ${plan.encore} ${lost.name}`);
    const ms = 2 * (bounds.endMs - bounds.encoreMs);
    effects[plan.encore](lost, { kind: plan.encore, atMs: 0, site: 0, ms, value: 1 });
  });
  world.writeRegularly();
  world.lookRegularly(() => (exception === null ? bounds : null));
  const endMs = plan.encore === null ? bounds.encoreMs : bounds.endMs;
  try {
    for (let ms = 0; ms < endMs && rules.broken() === null; ms += STEP_MS)
      scheduler.run(Math.min(endMs, ms + STEP_MS));
    if (plan.encore !== null && exception === null) rules.requireHandover(bounds, lost);
    if (rules.broken() === null) world.checkRestore(exception);
  } catch (error) {
    rules.report("bug", `${(error as Error).stack}`);
  }
  /** Written after the first word was acknowledged. */
  const bases = bucket.writtenSince("bases/", rules.acknowledged[0]?.timeMs ?? 0);
  return { broken: rules.broken(), trace, bases };
}
