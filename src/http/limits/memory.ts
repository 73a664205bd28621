/**
 * Bounds what clients keep in memory: the request bodies of writes in progress, of which a store has no bound of its own,
 * and large pages that are not sent yet.
 */
import { fail } from "../../base/error.ts";
import { LARGE_PAGE_BYTES } from "../../domain/page.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Connections } from "./connections.ts";

const MAX_WRITE_BYTES = 2 ** 24;
/** A write counts at least this much, which allows 4,096 of them. */
const MIN_WRITE_BYTES = 2 ** 12;
const MAX_UNSENT_BYTES = 2 ** 25;

/**
 * Divides bytes, or places, among clients: one has at most half, so that the others go on.
 * @param problem message of the error if there is no room
 */
export function createShares(max: number, problem: string) {
  const amounts = new Map<ClientId | null, number>();
  let total = 0;

  function add(client: ClientId | null, amount: number): void {
    total += amount;
    const own = (amounts.get(client) ?? 0) + amount;
    if (own === 0) amounts.delete(client);
    else amounts.set(client, own);
  }

  return {
    /** @returns a function that releases the amount. @throws {AppError} unavailable */
    reserve(client: ClientId | null, amount: number): () => void {
      const own = amounts.get(client) ?? 0;
      if (total + amount > max || own + amount > max / 2) fail("unavailable", problem);
      add(client, amount);
      return () => add(client, -amount);
    },
    total: () => total,
  };
}

/**
 * @param client `null` for one that is not authenticated yet
 * @param bodyBytes size of the request body
 * @returns a function to call at the end of the write
 * @throws {AppError} unavailable if the client has too many writes in progress, or all clients have
 */
export type ReserveWrite = (client: ClientId | null, bodyBytes: number) => () => void;

export function createWriteMemory(maxBytes = MAX_WRITE_BYTES): ReserveWrite {
  const shares = createShares(maxBytes, "too many writes are in progress");
  return (client, bodyBytes) => shares.reserve(client, Math.max(bodyBytes, MIN_WRITE_BYTES));
}

export type ResponseMemory = ReturnType<typeof createResponseMemory>;

/** Large pages that their clients have not read: Bun keeps them for as long as a client likes. */
export function createResponseMemory({ isUnsent }: Pick<Connections, "isUnsent">) {
  const problem = "too many large pages are unsent: request a smaller page";
  const shares = createShares(MAX_UNSENT_BYTES, problem);
  let unsent: { readonly request: Request; readonly release: () => void }[] = [];

  /** Nothing reports when a response was sent. */
  function releaseSent(): void {
    unsent = unsent.filter(({ request, release }) => {
      if (isUnsent(request)) return true;
      release();
      return false;
    });
  }

  return {
    /**
     * Counts the body of a response if it is large.
     * @throws {AppError} unavailable if too many bytes are unsent
     */
    reserve(request: Request, client: ClientId, body: string): void {
      // A UTF-16 code unit takes 1 to 3 bytes in UTF-8.
      if (3 * body.length <= LARGE_PAGE_BYTES) return;
      const bytes = Buffer.byteLength(body);
      if (bytes <= LARGE_PAGE_BYTES) return;
      releaseSent();
      unsent.push({ request, release: shares.reserve(client, bytes) });
    },
    /** @returns the size of all large pages that are not sent */
    bytes(): number {
      releaseSent();
      return shares.total();
    },
  };
}
