/** Bounded amounts, such as of memory. One client has at most half of an amount while others need some. */
import { fail } from "./error.ts";

/** What one request takes of an amount. */
export interface Share {
  /** @throws {AppError} unavailable if so much more is not there */
  readonly require: (amount: number) => void;
  /** @throws {AppError} unavailable as `require` */
  readonly take: (amount: number) => void;
  /** Takes, or gives back, without a check. */
  readonly change: (amount: number) => void;
  /** Gives everything back. It may be called several times. */
  readonly release: () => void;
}

export type Budget = ReturnType<typeof createBudget>;

/** @param problem message of the error */
export function createBudget(max: number, problem: string) {
  const takenBy = new Map<string | null, number>();
  let taken = 0;

  function share(client: string | null): Share {
    let own = 0;

    function change(amount: number): void {
      own += amount;
      taken += amount;
      const ofClient = (takenBy.get(client) ?? 0) + amount;
      if (ofClient === 0) takenBy.delete(client);
      else takenBy.set(client, ofClient);
    }

    /** The only share of the process fits always, the only one of a client up to the limit of the process. */
    function require(amount: number): void {
      const ofClient = (takenBy.get(client) ?? 0) - own;
      const fitsClient = ofClient === 0 || ofClient + own + amount <= max / 2;
      const fitsAll = taken + amount <= max;
      if (taken > own && !(fitsClient && fitsAll)) fail("unavailable", problem);
    }

    function take(amount: number): void {
      require(amount);
      change(amount);
    }

    return { require, take, change, release: () => change(-own) };
  }

  return { share, taken: () => taken };
}
