/** GET one user, against everyone. */
import { type Running, type Variant, withServers } from "./contenders.ts";
import { type Candidate, type Group, interleave, joined, type Plan } from "./rounds.ts";
import { createTokens, type Seed } from "./seed.ts";

export const reads_title = "GET /users/:id, 64 connections";

export const ours = "user-api";
export const framework = "Elysia and its bearer plugin alone";
export const framework_logging = `${framework}, with log lines`;
export const many_tokens = "user-api, 64 tokens";

const ceiling = "raw Bun.serve";

const near: Record<string, Variant> = {
  [ours]: { contender: "user-api" },
  "user-api, no log lines": { contender: "user-api", log: false },
  [ceiling]: { contender: "raw" },
};
const frameworks: Record<string, Variant> = {
  [framework_logging]: { contender: "Elysia" },
  [framework]: { contender: "Elysia", log: false },
};
const peers: Record<string, Variant> = {
  "Hono on Bun": { contender: "Hono" },
  Fastify: { contender: "Fastify" },
  Express: { contender: "Express" },
  "Fastify, newer Node": { contender: "Fastify, newer Node" },
  "Express, newer Node": { contender: "Express, newer Node" },
};

/** As many as there are connections: this service looks each up once a turn of its event loop. */
const TOKENS = 64;

export function measureReads(seed: Seed, plan: Plan): Promise<Group> {
  const tokens = createTokens(seed, TOKENS);
  return withServers(seed, { ...near, ...frameworks, ...peers }, async (servers) => {
    const load = { mode: "user", connections: 64 } as const;
    const candidates: Candidate[] = [...servers].map(([name, server]) => ({ name, server, load }));
    const server = servers.get(ours) as Running;
    const shared = { ...server, token: tokens.join(",") };
    candidates.push({ name: many_tokens, server: shared, load });
    const named = (...names: readonly string[]) =>
      candidates.filter(({ name }) => names.includes(name));
    // In parts: an engine throws away what it has compiled when it stands still for 20 s.
    return joined(reads_title, [
      await interleave(reads_title, named(...Object.keys(near)), {
        ...plan,
        rounds: plan.near_rounds,
      }),
      await interleave(reads_title, named(ceiling, ...Object.keys(frameworks), many_tokens), plan),
      await interleave(reads_title, named(ours, ...Object.keys(peers)), plan),
    ]);
  });
}
