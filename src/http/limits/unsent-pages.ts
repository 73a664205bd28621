/** Large pages that their clients have not read: Bun keeps them for as long as a client likes. */
import { fail } from "../../base/error.ts";
import { LARGE_PAGE_BYTES } from "../../domain/page.ts";
import type { Connections } from "./connections.ts";

/** Maximum size of all large pages that have not been sent. One token has at most half of it. */
const MAX_UNSENT_BYTES = 32 * 2 ** 20;

interface UnsentPage {
  readonly request: Request;
  readonly tokenHash: string;
  readonly bytes: number;
}

function sizeOf(pages: readonly UnsentPage[]): number {
  return pages.reduce((sum, { bytes }) => sum + bytes, 0);
}

export type UnsentPages = ReturnType<typeof createUnsentPages>;

export function createUnsentPages({ isUnsent }: Pick<Connections, "isUnsent">) {
  let pages: readonly UnsentPage[] = [];

  /** Nothing reports when a response was sent. */
  function unsent(): readonly UnsentPage[] {
    pages = pages.filter(({ request }) => isUnsent(request));
    return pages;
  }

  return {
    /**
     * Counts the body of a response if it is large.
     * @throws {AppError} unavailable if too many bytes are unsent
     */
    add(request: Request, tokenHash: string, body: string): void {
      // A UTF-16 code unit takes 1 to 3 bytes in UTF-8.
      if (3 * body.length <= LARGE_PAGE_BYTES) return;
      const bytes = Buffer.byteLength(body);
      if (bytes <= LARGE_PAGE_BYTES) return;
      const all = unsent();
      const own = all.filter((page) => page.tokenHash === tokenHash);
      const fits =
        sizeOf(all) + bytes <= MAX_UNSENT_BYTES && sizeOf(own) + bytes <= MAX_UNSENT_BYTES / 2;
      if (!fits) fail("unavailable", "too many large pages are unsent: request a smaller page");
      pages = [...all, { request, tokenHash, bytes }];
    },
    bytes: () => sizeOf(unsent()),
  };
}
