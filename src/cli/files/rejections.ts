import { formatNumber } from "../../base/count-text.ts";
import { escapeInvisible } from "../../base/readable-text.ts";

/** Reasons that are listed. Others are only counted. */
const MAX_LISTED = 20;

/** Why records are rejected: the first of each reason, and how many more have it. */
export function createRejections() {
  /** By the reason without its numbers and texts: `user 7` and `user 8` are one. */
  const reasons = new Map<string, { readonly first: string; others: number }>();
  let count = 0;
  return {
    /** @param where precedes the reason */
    add(where: string, reason: string): void {
      count += 1;
      const kind = reason.replaceAll(/\d+|"[^"]*"/g, "0");
      const known = reasons.get(kind);
      if (known !== undefined) known.others += 1;
      else if (reasons.size < MAX_LISTED)
        reasons.set(kind, { first: `${where}: ${reason}`, others: 0 });
    },
    /** @returns lines, to be printed */
    text(): string {
      let unlisted = count;
      const lines = [...reasons.values()].map(({ first, others }) => {
        unlisted -= 1 + others;
        return others === 0 ? first : `${first} (and ${formatNumber(others)} more like it)`;
      });
      if (unlisted > 0) lines.push(`… and ${formatNumber(unlisted)} more`);
      return lines.map((line) => `${escapeInvisible(line)}\n`).join("");
    },
  };
}
