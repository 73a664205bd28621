/** What happens in a history, and what it happens to. */
import { randomOf } from "../clock.ts";
import type { Call, Outcome, Row } from "./reference.ts";

export interface Clock {
  nowMs: number;
}

/** A service under test. */
export interface Port {
  /** Whether its clock is that of the history. Otherwise all times that it shows are those of the beginning. */
  readonly hasClock: boolean;
  /** Whether a read sees the records as they were after one of the changes, also while others write. */
  readonly hasMoments: boolean;
  /** A write without a response is sent again with its key, and its outcome is `isRepeated` then. */
  send(call: Call): Promise<Outcome>;
  /** Kills a server while calls are sent, and starts it again. Missing if it has none. */
  kill?(): Promise<void>;
  restart(): Promise<void>;
  /** Lets no file of a server grow by more than so many bytes; `null` ends it. Missing if that is not possible. */
  fill?(bytes: number | null): void;
  /** Deletes keys that were stored, and changes that were made, before a time. */
  expire(before: Date): Promise<void>;
  inspect(): Promise<{ problems: readonly string[]; users: Row[]; orders: Row[]; keys: Row[] }>;
  close(): Promise<void>;
}

export type OpenPort = (clock: Clock) => Promise<Port>;

const kinds = ["calls", "kill", "restart", "pass", "back", "expire", "full"] as const;
/** Of what is no call. */
const events = [...kinds.slice(1), "pass", "expire", "full"] as const;

export interface Step {
  readonly kind: (typeof kinds)[number];
  /** One for each call, which are sent at the same time. Other kinds make of the first what they need. */
  readonly seeds: readonly number[];
}

export const HOUR_MS = 60 * 60 * 1000;
export const DAY_MS = 24 * HOUR_MS;
/** Times that pass. */
export const PASSES_MS = [1, 1_000, HOUR_MS, DAY_MS - 1, DAY_MS] as const;
const STEPS = 11;
const MAX_CALLS = 8;

export function makeSteps(seed: number): Step[] {
  const random = randomOf(seed, "steps");
  return Array.from({ length: STEPS }, (_, at) => {
    // Most steps are calls, and the first one has many.
    const kind = events[at === 0 ? -1 : random(26)] ?? "calls";
    const count = at === 0 ? MAX_CALLS : ([1, 2, 3, MAX_CALLS][random(4)] ?? 1);
    return { kind, seeds: Array.from({ length: count }, () => random(2 ** 30)) };
  });
}
