/** What the threads of a server know of its writes without a message: while a write hangs, its thread reads none. */
export type WriteState = ReturnType<typeof createWriteState>;

const CLOSED = -1;

/** @param memory of another thread; two numbers */
export function createWriteState(memory = new SharedArrayBuffer(8)) {
  const cells = new Int32Array(memory);
  const replace = (number: number, by: number) =>
    Atomics.compareExchange(cells, 0, number, by) === number;
  let begun = CLOSED;
  return {
    memory,
    /** Odd while an attempt to write runs. */
    number: () => Atomics.load(cells, 0),
    /** Begins an attempt, which `end` ends. @returns false if nothing may be acknowledged any more */
    begin(): boolean {
      const number = Atomics.load(cells, 0);
      begun = number === CLOSED ? CLOSED : number + 1;
      return begun !== CLOSED && replace(number, begun);
    },
    /** @returns whether an attempt was running, and may be acknowledged */
    end(): boolean {
      const number = begun;
      begun = CLOSED;
      return number !== CLOSED && replace(number, (number + 1) % 2 ** 31);
    },
    /** Nothing is acknowledged any more. @returns false if an attempt has begun or ended since that number */
    close: (number: number) => replace(number, CLOSED),
    isFailing: () => cells[1] === 1,
    /** @param isFailing whether the last attempt has failed because of the disk */
    setFailing: (isFailing: boolean) => void Atomics.store(cells, 1, Number(isFailing)),
  };
}
