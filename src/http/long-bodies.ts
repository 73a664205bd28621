/** Long bodies: they are sent at the speed of their client, and counted while it may not read them. */
import { andThen, type Maybe } from "../maybe.ts";
import { LARGE_PAGE_BYTES } from "../page.ts";
import type { Connections } from "./connections.ts";

/** `null` for no body. */
export type ResponseBody = string | Blob | ReadableStream<Uint8Array> | null;

/**
 * Maximum time that a client takes to read a chunk, of at most 256 KiB. A slower one would keep memory from others for
 * minutes.
 */
const MAX_CHUNK_MS = 8_000;

/** What a body needs to be sent at the speed of its client. */
export interface BodyCall {
  readonly request: Request;
  readonly connections: Pick<Connections, "unfinished" | "disconnect">;
}

/** As `Chunks`, but they may be available later. */
interface BodyChunks extends Disposable {
  next(): Maybe<Uint8Array | null>;
}

/** Streams a body at the speed of the client; discards the rest if the client disconnects or is too slow. */
export function streamOf(
  { request, connections }: BodyCall,
  start: string,
  chunks: BodyChunks,
  end: string,
  maxChunkMs = MAX_CHUNK_MS,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let begun = start === "";
  let timer: Timer | undefined;

  function discard(): void {
    clearTimeout(timer);
    chunks[Symbol.dispose]();
  }

  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        clearTimeout(timer);
        timer = setTimeout(() => {
          discard();
          controller.error(new Error("the client reads too slowly"));
          connections.disconnect(request);
        }, maxChunkMs);
        if (!begun) {
          begun = true;
          controller.enqueue(encoder.encode(start));
          return undefined;
        }
        return andThen(chunks.next(), (chunk) => {
          if (chunk !== null) {
            controller.enqueue(chunk);
            return;
          }
          clearTimeout(timer);
          if (end !== "") controller.enqueue(encoder.encode(end));
          controller.close();
        });
      },
      cancel: discard,
    },
    // A chunk is valid until the next one is read, so nothing may be read ahead.
    { highWaterMark: 0 },
  );
}

/** The operating system takes this much of a response, also if the client has announced the smallest window. */
const MAX_BUFFERED_BYTES = 32 * 2 ** 10;
/** With more unfinished requests than this, which may be of clients that do not read, long bodies are counted. */
const MAX_UNCOUNTED = 64;
/** Longest encoding of a UTF-16 code unit. */
const MAX_UNIT_BYTES = 3;

/** @returns whether the operating system may not take the whole body */
export function isLong(body: ResponseBody): body is string | Blob {
  return typeof body === "string"
    ? body.length * MAX_UNIT_BYTES > MAX_BUFFERED_BYTES
    : body instanceof Blob && body.size > MAX_BUFFERED_BYTES;
}

/**
 * Each response holds one chunk of a `Blob` that all of them may share.
 * @param release called when no more is needed. It may be called several times
 */
function chunksOf(blob: Blob, release: () => void): BodyChunks {
  let end = 0;
  return {
    next() {
      if (end < blob.size) {
        const start = end;
        end += LARGE_PAGE_BYTES;
        return blob.slice(start, end).bytes();
      }
      release();
      return null;
    },
    [Symbol.dispose]: release,
  };
}

/**
 * Reserves memory for a long body, because Bun keeps what the client has not read, for as long as the client likes. A
 * stream counts its own bytes.
 * @param hold counts the bytes of the body until the function that it returns is called
 * @throws whatever `hold` throws
 */
export function boundBody(
  call: BodyCall,
  body: string | Blob,
  hold: (bytes: number) => () => void,
): ResponseBody {
  if (call.connections.unfinished() <= MAX_UNCOUNTED) return body;
  const blob = typeof body === "string" ? new Blob([body]) : body;
  if (blob.size <= MAX_BUFFERED_BYTES) return body;
  return streamOf(call, "", chunksOf(blob, hold(blob.size)), "");
}
