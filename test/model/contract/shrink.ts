import { play, type Result } from "./play.ts";
import { promises, type Rule } from "./reference.ts";
import { makeSteps, type OpenPort, type Step } from "./steps.ts";

/** Leaves out steps and calls, one at a time, as long as the same rule is broken. @returns lines for people */
export async function explainSeed(seed: number, rule: Rule, open: OpenPort): Promise<string> {
  let smallest: readonly Step[] = makeSteps(seed);
  const attempt = async (candidate: readonly Step[]) => {
    if ((await play(candidate, open)).broken?.rule === rule) smallest = candidate;
  };
  for (let at = smallest.length - 1; at >= 0; at -= 1) await attempt(smallest.toSpliced(at, 1));
  for (let at = 0; at < smallest.length; at += 1)
    for (let left = (smallest[at]?.seeds.length ?? 0) - 1; left >= 0; left -= 1) {
      const { kind, seeds } = smallest[at] as Step;
      await attempt(smallest.with(at, { kind, seeds: seeds.toSpliced(left, 1) }));
    }
  return describe(seed, rule, await play(smallest, open));
}

export function describe(seed: number, rule: Rule, { broken, trace }: Result): string {
  const lines = trace.map((one) => JSON.stringify(one));
  return [`seed ${seed}: ${promises[rule]}`, ...lines, broken?.what].join("\n");
}
