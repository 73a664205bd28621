/** Bounds what clients keep in memory: bodies of writes in progress, which no store bounds, and large pages not sent yet. */
import { fail } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import { LARGE_PAGE_BYTES, MAX_PAGE_BYTES, NO_ROOM } from "../../domain/page.ts";
import { MAX_RECORD_BYTES } from "../../domain/record.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Connections } from "../connections/connections.ts";

const MAX_WRITE_BYTES = 2 ** 24;
/** A write counts at least this much, which allows 4,096 of them. */
const MIN_WRITE_BYTES = 2 ** 12;
const MAX_UNSENT_BYTES = 2 ** 25;

/** Divides bytes, or places, among clients: one has at most half, so that the others go on. */
export function createShares(max: number, problem: string) {
  const amounts = new Map<ClientId | null, number>();
  let total = 0;

  function add(client: ClientId | null, amount: number): void {
    total += amount;
    const own = (amounts.get(client) ?? 0) + amount;
    if (own === 0) amounts.delete(client);
    else amounts.set(client, own);
  }

  function room(client: ClientId | null): number {
    return Math.min(max - total, max / 2 - (amounts.get(client) ?? 0));
  }

  return {
    room,
    /** @returns a function that releases the amount. @throws {AppError} unavailable */
    reserve(client: ClientId | null, amount: number): () => void {
      if (amount > room(client)) fail("unavailable", problem);
      add(client, amount);
      return () => add(client, -amount);
    },
    total: () => total,
  };
}

export type ReserveWrite = ReturnType<typeof createWriteMemory>;

/** As `reserve`. The client is `null` if it is not authenticated yet. */
export function createWriteMemory(maxBytes = MAX_WRITE_BYTES) {
  const shares = createShares(maxBytes, "too many writes are in progress");
  return (client: ClientId | null, bodyBytes: number) =>
    shares.reserve(client, Math.max(bodyBytes, MIN_WRITE_BYTES));
}

const PART_BYTES = 2 ** 16;
/** Bun asks for four parts in advance. */
const AHEAD_BYTES = 4 * PART_BYTES;

interface UnsentPage {
  /** Of each response, whether it is not sent yet. */
  responses: (() => boolean)[];
  readonly release: () => void;
}

/** @param end called when the last part is taken, or the client has disconnected */
async function* partsOf(page: Blob, end: () => void) {
  try {
    // While the client reads, Bun asks for the next part in the same turn of the event loop.
    for (let at = 0; at < page.size; at += PART_BYTES)
      yield await yieldToEventLoop().then(() => page.slice(at, at + PART_BYTES).bytes());
  } finally {
    end();
  }
}

/** Large pages that clients have not read. @param isSocket whether it is a Unix socket, where only streams report what is sent */
export function createResponseMemory(
  { isUnsent }: Pick<Connections, "isUnsent">,
  isSocket: boolean,
) {
  const shares = createShares(MAX_UNSENT_BYTES, NO_ROOM);
  /** By the `Blob` that several responses share, or by the request of a single one. */
  const unsent = new Map<Blob | Request, UnsentPage>();

  /** Nothing reports when a response was sent. */
  function releaseSent(): void {
    for (const [key, page] of unsent) {
      page.responses = page.responses.filter((isWaiting) => isWaiting());
      if (page.responses.length > 0) continue;
      page.release();
      unsent.delete(key);
    }
  }

  function hasRoom(client: ClientId | null, bytes: number): boolean {
    if (shares.room(client) < bytes) releaseSent();
    return shares.room(client) >= bytes;
  }

  return {
    room(client: ClientId | null = null): number {
      return hasRoom(client, MAX_PAGE_BYTES) ? MAX_PAGE_BYTES : LARGE_PAGE_BYTES;
    },
    hold(client: ClientId | null = null, records: number): (() => void) | null {
      const bytes = Math.min(records * MAX_RECORD_BYTES, MAX_PAGE_BYTES);
      if (bytes <= LARGE_PAGE_BYTES) return () => {};
      return hasRoom(client, bytes) ? shares.reserve(client, bytes) : null;
    },
    /** A `Blob` of several responses counts once. @throws {AppError} unavailable if too many bytes are unsent */
    reserve(request: Request, client: ClientId, body: string | Blob) {
      const isText = typeof body === "string";
      // A UTF-16 code unit takes 1 to 3 bytes in UTF-8.
      if (isText && 3 * body.length <= LARGE_PAGE_BYTES) return body;
      const bytes = isText ? Buffer.byteLength(body) : body.size;
      if (bytes <= LARGE_PAGE_BYTES || request.signal.aborted) return body;
      const key = isText ? request : body;
      let page = unsent.get(key);
      const release = page && isSocket ? shares.reserve(client, AHEAD_BYTES) : () => {};
      if (!page) {
        releaseSent();
        page = { responses: [], release: shares.reserve(client, bytes) };
        unsent.set(key, page);
      }
      let isWaiting = true;
      page.responses.push(isSocket ? () => isWaiting : () => isUnsent(request));
      if (!isSocket) return body;
      return partsOf(isText ? new Blob([body]) : body, () => {
        isWaiting = false;
        release();
      });
    },
    bytes(): number {
      releaseSent();
      return shares.total();
    },
  };
}
