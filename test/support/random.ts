/**
 * Pseudo-random numbers, the same in every run.
 * @param seed not 0
 * @returns an integer from 0 to `below` - 1
 * @see https://en.wikipedia.org/wiki/Xorshift
 */
export function makeRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
