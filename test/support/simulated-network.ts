/**
 * Processes that share an object storage, one step at a time and in an order that depends on a seed alone. Requests
 * are applied late, twice, or after they have failed; responses are lost; processes are slow, and are killed. Nothing
 * here takes time.
 */
import { AppError } from "../../src/base/error.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";

export interface Process {
  /** The storage as this process reaches it: it repeats what fails. */
  readonly storage: ObjectStorage;
  /** Resolves at some later step. */
  readonly pause: () => Promise<void>;
  /** Nothing reaches it any more. What it has sent may still arrive. */
  kill(): void;
  readonly isDead: () => boolean;
}

interface Request {
  readonly isSlow: boolean;
  readonly isDead: () => boolean;
  readonly apply: () => Promise<unknown>;
  readonly resolve: (result: Promise<unknown>) => void;
  readonly reject: (error: AppError) => void;
  result: Promise<unknown> | null;
  /** Its process has been told that it failed. */
  hasFailed: boolean;
}

/** @returns a function that repeats the work until it succeeds */
function insist<Given extends unknown[], Result>(work: (...given: Given) => Promise<Result>) {
  return async (...given: Given): Promise<Result> => {
    for (;;) {
      try {
        return await work(...given);
      } catch {
        // Again.
      }
    }
  };
}

/** Everything that can continue does so. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** @param random returns an integer below its argument */
export function createNetwork(shared: ObjectStorage, random: (below: number) => number) {
  const requests: Request[] = [];
  const noResponse = new AppError("unavailable", "no response");

  function send<Result>(
    process: Pick<Request, "isSlow" | "isDead">,
    apply: () => Promise<Result>,
  ): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      const { isSlow, isDead } = process;
      const answer = resolve as Request["resolve"];
      requests.push({
        isSlow,
        isDead,
        apply,
        resolve: answer,
        reject,
        result: null,
        hasFailed: false,
      });
    });
  }

  function drop(request: Request): void {
    const last = requests.pop();
    const at = last === request || last === undefined ? -1 : requests.indexOf(request);
    if (at !== -1 && last !== undefined) requests[at] = last;
  }

  /** Tells its process that it has failed. A request that was not applied may still be. */
  function fail(request: Request): void {
    request.hasFailed = true;
    if (!request.isDead()) request.reject(noResponse);
  }

  function advance(request: Request): void {
    const isLate = request.hasFailed || request.isDead();
    if (request.result === null) {
      if (isLate && random(3) === 0) {
        drop(request);
        return;
      }
      if (!isLate && random(12) === 0) {
        fail(request);
        return;
      }
      request.result = request.apply();
      if (random(2) === 0) return;
    }
    // HTTP clients repeat requests.
    if (random(12) === 0) request.result = request.apply();
    drop(request);
    if (isLate) return;
    if (random(6) === 0) fail(request);
    else request.resolve(request.result);
  }

  return {
    /** @param isSlow whether it advances a tenth as often as the others */
    join(isSlow: boolean): Process {
      let isKilled = false;
      const process = { isSlow, isDead: () => isKilled };
      const reach = <Given extends unknown[], Result>(work: (...given: Given) => Promise<Result>) =>
        insist((...given: Given) => send(process, () => work(...given)));
      return {
        ...process,
        storage: {
          url: shared.url,
          get: reach(shared.get),
          put: reach(shared.put),
          create: reach(shared.create),
          list: reach(shared.list),
          remove: reach(shared.remove),
        },
        pause: () => send(process, async () => {}).catch(() => {}),
        kill() {
          isKilled = true;
        },
      };
    },
    /** @returns whether anything is left to do */
    async step(): Promise<boolean> {
      const pick = () => requests[random(requests.length)];
      const first = pick();
      const request = first?.isSlow === true && random(10) > 0 ? pick() : first;
      if (request === undefined) return false;
      advance(request);
      await settle();
      return true;
    },
  };
}
