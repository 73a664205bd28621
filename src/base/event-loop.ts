/** Ends the turn of the event loop, so that other requests, signals and timers are handled before the caller continues. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
