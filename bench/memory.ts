/** 8 MB: more than a core has to itself, so that what is read comes from what all on the host share. */
const CELLS = 2 ** 21;
const READS = 100_000;

/** Each cell names the next, in one cycle through all of them that no processor guesses. */
function makeCycle(): Int32Array {
  // A linear congruential generator of full period (Hull and Dobell, 1962).
  return Int32Array.from(
    { length: CELLS },
    (_, cell) => (cell * 1_664_525 + 1_013_904_223) % CELLS,
  );
}

let cycle: Int32Array | null = null;
let cell = 0;

/** How long one read beyond a core's own caches takes at the moment: others on the host make it longer, unseen. */
export function memoryLatency_ns(): number {
  cycle ??= makeCycle();
  const began_ns = Bun.nanoseconds();
  for (let read = 0; read < READS; read += 1) cell = cycle[cell] ?? 0;
  return (Bun.nanoseconds() - began_ns) / READS;
}
