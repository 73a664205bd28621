import type { Environment } from "../config.ts";
import type { OpenStore } from "../store.ts";

/** What a command needs of the world: so that a test can be that world. */
export interface Io {
  readonly environment: Environment;
  readonly openStore: OpenStore;
  readonly now: () => Date;
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Resolves when the process is asked to end: with `null` by a signal, else with the fault. */
  readonly untilStopped: () => Promise<unknown>;
}
