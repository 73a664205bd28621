/**
 * Repeats work until it returns true, e.g. one transaction at a time, so that other writes run in between.
 * @param signal ends it after the current run
 */
export async function untilDone(work: () => Promise<boolean>, signal?: AbortSignal): Promise<void> {
  while (!signal?.aborted && !(await work()));
}
