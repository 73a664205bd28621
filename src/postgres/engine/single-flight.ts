import { yieldToEventLoop } from "../../base/event-loop.ts";

/** @returns a function that runs work after earlier work of a key, once for all calls until then: they see what is committed */
export function createSingleFlight<Result>() {
  const running = new Map<string, Promise<unknown>>();
  const waiting = new Map<string, Promise<Result>>();

  async function runNext(key: string, work: () => Promise<Result>): Promise<Result> {
    await running.get(key);
    await yieldToEventLoop();
    waiting.delete(key);
    const result = work();
    const ended = Promise.allSettled([result]);
    running.set(key, ended);
    try {
      return await result;
    } finally {
      if (running.get(key) === ended) running.delete(key);
    }
  }

  return (key: string, work: () => Promise<Result>): Promise<Result> => {
    const next = waiting.get(key) ?? runNext(key, work);
    waiting.set(key, next);
    return next;
  };
}
