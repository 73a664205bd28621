/**
 * Bounds what clients keep in memory: the request bodies of writes in progress, of which a store has no bound of its own,
 * and large pages that are not sent yet. Of both, each client has at most half, so that the others go on.
 */
import { fail } from "../../base/error.ts";
import { LARGE_PAGE_BYTES } from "../../domain/page.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Connections } from "./connections.ts";

const MAX_WRITE_BYTES = 2 ** 24;
/** A write counts at least this much, which allows 4,096 of them. */
const MIN_WRITE_BYTES = 2 ** 12;
const MAX_UNSENT_BYTES = 2 ** 25;

/** @param problem message of the error if the bytes do not fit */
function createShares(maxBytes: number, problem: string) {
  const bytesOf = new Map<ClientId | null, number>();
  let allBytes = 0;

  function add(client: ClientId | null, bytes: number): void {
    allBytes += bytes;
    const own = (bytesOf.get(client) ?? 0) + bytes;
    if (own === 0) bytesOf.delete(client);
    else bytesOf.set(client, own);
  }

  /** @throws {AppError} unavailable */
  function requireRoom(client: ClientId | null, bytes: number): void {
    const own = bytesOf.get(client) ?? 0;
    if (allBytes + bytes > maxBytes || own + bytes > maxBytes / 2) fail("unavailable", problem);
  }

  return {
    requireRoom,
    /** @returns a function that releases the bytes. @throws {AppError} unavailable */
    reserve(client: ClientId | null, bytes: number): () => void {
      requireRoom(client, bytes);
      add(client, bytes);
      return () => add(client, -bytes);
    },
    bytes: () => allBytes,
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
      releaseSent();
      // Before `byteLength` joins the parts of the body, because requests that share a page each have a body of their own.
      if (body.length > LARGE_PAGE_BYTES) shares.requireRoom(client, body.length);
      const bytes = Buffer.byteLength(body);
      if (bytes <= LARGE_PAGE_BYTES) return;
      unsent.push({ request, release: shares.reserve(client, bytes) });
    },
    /** @returns the size of all large pages that are not sent */
    bytes(): number {
      releaseSent();
      return shares.bytes();
    },
  };
}
