import type { Environment } from "../config.ts";
import type { OpenStore, RestoreStore } from "../store.ts";

/** Why a server ends: it was asked to, or something went wrong that nothing else caught. */
export type Stop =
  | { readonly by: "signal"; readonly signal: string }
  | { readonly by: "fault"; readonly error: unknown };

/** What a command needs of the world: so that a test can be that world. */
export interface Io {
  readonly environment: Environment;
  readonly openStore: OpenStore;
  readonly restoreStore: RestoreStore;
  /** Whether a person reads what is printed on stdout. */
  readonly terminal: boolean;
  readonly now: () => Date;
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** From the call on, watches for what is to end the process. */
  readonly untilStopped: () => Promise<Stop>;
}
